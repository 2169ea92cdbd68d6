package minion

import (
	"strings"
	"testing"

	"saltern/master/value"
)

func TestAttack05EventTags(t *testing.T) {
	const jid = "20260102030405678901"
	allowed := []string{
		"minion_start", "minion_ping", "salt/minion/web1/start", "salt/beacon/web1/load/", "salt/beacon/web1/inotify//etc/passwd",
		"salt/job/" + jid + "/prog/web1/0", "salt/job/" + jid +
			"/start/web1", "salt/state_result/web1/apache", "myco/deploy/done", "my/custom/tag", "backup", "salt/test/event/1",
		"salt/job/None/prog/web1/0", "salt/state_result/None/web1/apache", // of state.sls_id
	}

	refused := []string{
		"", "salt/key", "key", "KEY", " key", "/key", "//salt/key", "Salt/key", "SALT/auth", "salt/auth", "salt//auth", "auth", "salt/job/" + jid + "/ret/web1",
		"salt/job/" + jid + "/ret/db1", "salt/job/" + jid +
			"/new", "salt/job/" + jid + "/publish", "salt/job/" + jid + "/return", "salt/job/" + jid + "/prog/db1/0",
		"salt/job/" + jid + "/start/db1", "salt/job/" + jid +
			"/prog/web1x/0", jid, jid + "/x", "salt/minion/db1/start", "salt/beacon/db1/load/", "salt/run/" +
			jid + "/ret", "salt/wheel/" + jid + "/ret",
		"salt/wheel/" + jid + "/new", "salt/cluster/key", "cluster/peer/1", "salt/presence/change", "presence", "salt/cloud/x/creating", "salt/master/start", "salt/minion", "salt/minion/web1",
		"minion/refresh/db1", "resource/refresh/db1", "salt/netapi/hook", "syndic/x/salt/job", "salt/fileserver/roots/update", "rotate\nkey", "tag\x00x", strings.Repeat("x", 600),
		"salt/engines/db1/x", "salt/batch/" + jid +
			"/recover", "raft/vote", "salt/test", "salt/Test/x", "salt/testing/x", "salt/reactors/manage/list",
		"salt/job/None/prog/db1/0", "salt/job/None/prog/web1/new", "salt/job/None/start/web1", "salt/job/None/ret/web1", "salt/job/none/prog/web1/0", "salt/state_result/None/db1/x",
	}

	f := EventFilter{}
	for _, tag := range allowed {
		if !f.Allowed("web1", tag) {
			t.Errorf("%q is refused", tag)
		}
	}

	for _, tag := range refused {
		if f.Allowed("web1", tag) {
			t.Errorf("%q is allowed", tag)
		}
	}

	strict := EventFilter{Prefixes: []string{"myco", "app/"}}
	for tag, want := range map[string]bool{
		"myco/x":                 true,
		"myco":                   true,
		"app/y":                  true,
		"mycorp/x":               false,
		"other":                  false,
		"salt/minion/web1/start": true,
		"salt/test/x":            false,
	} {
		if got := strict.Allowed("web1", tag); got != want {
			t.Errorf("with declared prefixes %q: %v", tag, got)
		}
	}
}

func TestAttack04EventData(t *testing.T) {
	m := value.NewMap("id", "db1", "x", int64(1))
	if got := ownData("web1", "my/tag", m); got.Str("id") != "web1" || m.Str("id") != "db1" {
		t.Errorf("data speaks for %q, the original for %q", got.Str("id"), m.Str("id"))
	}
	if got := ownData("web1", "my/tag", "text"); got.Str("id") != "web1" || got.Str("data") != "text" {
		t.Errorf("text data became %v", got)
	}
}

// TestEventsOfSyndics: with order_masters a syndic hands on the events of its master below its own
// name, and nobody's else; without it that space is the master's.
func TestEventsOfSyndics(t *testing.T) {
	above := EventFilter{Syndics: true, Prefixes: []string{"myco"}}
	for tag, want := range map[string]bool{
		"syndic/s1/20261121000000000001":                true,
		"syndic/s1/start":                               true,
		"syndic/s1/salt/minion/low1/start":              true,
		"syndic/s2/20261121000000000001":                false,
		"syndic/s1":                                     false,
		"syndic//20261121000000000001":                  false,
		"Syndic/s1/20261121000000000001":                false,
		"syndic/s1/salt/job/20261121000000000001/new":   false,
		"syndic/s1/cluster/event/x":                     false,
		"syndic/s1/20261121000000000001/ret/low1":       false,
		"salt/job/20261121000000000001/ret/low1":        false,
		"syndic/s1/" + strings.Repeat("x", maxEventTag): false,
		"syndic/s1/../s2/20261121000000000001\x00":      false,
	} {
		if above.Allowed("s1", tag) != want {
			t.Errorf("with order_masters %.60q: %v", tag, !want)
		}
		if (EventFilter{}).Allowed("s1", tag) {
			t.Errorf("without order_masters %.60q is allowed", tag)
		}
	}
}
