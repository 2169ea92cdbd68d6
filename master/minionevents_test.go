package master

import (
	"testing"

	"saltern/master/value"
)

// Reactions of administrators read the whole load, as with Salt.
func TestEventKeepsTheLoad(t *testing.T) {
	r := startMaster(t, "")
	n := r.accepted("web1", "min8")
	r.listen()
	n.ask("_minion_event", "tag", "my/tag", "data", value.NewMap("a", int64(1)), "more", "x")

	for _, e := range r.seen() {
		if e.Tag != "my/tag" {
			continue
		}

		d := e.Data
		if d.Str("cmd") != "_minion_event" || d.Str("id") != "web1" || d.Str("more") != "x" ||
			d.Str("tag") != "my/tag" || d.Map("data").Len() != 1 {
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
	n.ask("_register_resources", "resources", value.NewMap("ssh", []any{"r1"}), "resource_grains", value.NewMap())
	want := map[string][2]string{
		"salt/job/" + jid + "/ret/web1": {"cmd", "_return"},
		"resource/refresh/web1":         {"Resource cache refresh", "web1"},
	}

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
