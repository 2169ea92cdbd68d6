package master

import (
	"strings"
	"testing"

	"saltern/master/msgpack"
)

func TestAttack05EventTags(t *testing.T) {
	const jid = "20260102030405678901"
	allowed := []string{
		"minion_start", "minion_ping", "salt/minion/web1/start", "salt/beacon/web1/load/", "salt/beacon/web1/inotify//etc/passwd",
		"salt/job/" + jid + "/prog/web1/0", "salt/job/" + jid + "/start/web1", "salt/state_result/web1/apache", "myco/deploy/done", "my/custom/tag", "backup", "salt/test/event/1",
		"salt/job/None/prog/web1/0", "salt/state_result/None/web1/apache", // of state.sls_id
	}
	refused := []string{
		"", "salt/key", "key", "KEY", " key", "/key", "//salt/key", "Salt/key", "SALT/auth", "salt/auth", "salt//auth", "auth", "salt/job/" + jid + "/ret/web1",
		"salt/job/" + jid + "/ret/db1", "salt/job/" + jid + "/new", "salt/job/" + jid + "/publish", "salt/job/" + jid + "/return", "salt/job/" + jid + "/prog/db1/0",
		"salt/job/" + jid + "/start/db1", "salt/job/" + jid + "/prog/web1x/0", jid, jid + "/x", "salt/minion/db1/start", "salt/beacon/db1/load/", "salt/run/" + jid + "/ret", "salt/wheel/" + jid + "/ret",
		"salt/wheel/" + jid + "/new", "salt/cluster/key", "cluster/peer/1", "salt/presence/change", "presence", "salt/cloud/x/creating", "salt/master/start", "salt/minion", "salt/minion/web1",
		"minion/refresh/db1", "resource/refresh/db1", "salt/netapi/hook", "syndic/x/salt/job", "salt/fileserver/roots/update", "rotate\nkey", "tag\x00x", strings.Repeat("x", 600),
		"salt/engines/db1/x", "salt/batch/" + jid + "/recover", "raft/vote", "salt/test", "salt/Test/x", "salt/testing/x", "salt/reactors/manage/list",
		"salt/job/None/prog/db1/0", "salt/job/None/prog/web1/new", "salt/job/None/start/web1", "salt/job/None/ret/web1", "salt/job/none/prog/web1/0", "salt/state_result/None/db1/x",
	}
	f := eventFilter{}
	for _, tag := range allowed {
		if !f.allowed("web1", tag) {
			t.Errorf("%q is refused", tag)
		}
	}
	for _, tag := range refused {
		if f.allowed("web1", tag) {
			t.Errorf("%q is allowed", tag)
		}
	}
	strict := eventFilter{prefixes: []string{"myco", "app/"}}
	for tag, want := range map[string]bool{"myco/x": true, "myco": true, "app/y": true, "mycorp/x": false, "other": false, "salt/minion/web1/start": true, "salt/test/x": false} {
		if got := strict.allowed("web1", tag); got != want {
			t.Errorf("with declared prefixes %q: %v", tag, got)
		}
	}
}

// Reactions of administrators read the whole load, as with Salt.
func TestEventKeepsTheLoad(t *testing.T) {
	r := startMaster(t, "")
	n := r.accepted("web1", "min8")
	r.listen()
	n.ask("_minion_event", "tag", "my/tag", "data", msgpack.NewMap("a", int64(1)), "more", "x")
	for _, e := range r.seen() {
		if e.Tag != "my/tag" {
			continue
		}
		d := e.Data
		if d.Str("cmd") != "_minion_event" || d.Str("id") != "web1" || d.Str("more") != "x" || d.Str("tag") != "my/tag" || d.Map("data").Len() != 1 {
			t.Errorf("data: %v", d)
		}
		for _, secret := range []string{"tok", "nonce"} {
			if _, ok := d.Get(secret); ok {
				t.Errorf("%s is in the event", secret)
			}
		}
		return
	}
	t.Error("no event")
}

// Events of minions' requests hold what Salt's hold.
func TestEventsOfRequests(t *testing.T) {
	r := startMaster(t, "")
	n := r.accepted("web1", "min8")
	r.listen()
	jid := r.job("*", "test.ping").Str("jid")
	n.ask("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0, "success", true)
	n.ask("_register_resources", "resources", msgpack.NewMap("ssh", []any{"r1"}), "resource_grains", msgpack.NewMap())
	want := map[string][2]string{"salt/job/" + jid + "/ret/web1": {"cmd", "_return"}, "resource/refresh/web1": {"Resource cache refresh", "web1"}}
	until(t, "both events", func() bool {
		for _, e := range r.seen() {
			if w, ok := want[e.Tag]; ok && e.Data.Str(w[0]) != w[1] {
				t.Errorf("%s: %s", e.Tag, plainText(e.Data))
			}
			delete(want, e.Tag)
		}
		return len(want) == 0
	})
}

func TestAttack04EventData(t *testing.T) {
	m := msgpack.NewMap("id", "db1", "x", int64(1))
	if got := ownData("web1", m); got.Str("id") != "web1" || m.Str("id") != "db1" {
		t.Errorf("data speaks for %q, the original for %q", got.Str("id"), m.Str("id"))
	}
	if got := ownData("web1", "text"); got.Str("id") != "web1" || got.Str("data") != "text" {
		t.Errorf("text data became %v", got)
	}
}
