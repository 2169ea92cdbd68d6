package minions

import (
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
)

// Reactions of administrators read the whole load, as with Salt.
func TestEventKeepsTheLoad(t *testing.T) {
	r := mastertest.Start(t, "")
	n := r.AcceptedMinion("web1", "min8")
	r.ListenToBus()
	n.Ask("_minion_event", "tag", "my/tag", "data", value.NewMap("a", int64(1)), "more", "x")

	for _, e := range r.NewEvents() {
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
	r := mastertest.Start(t, "")
	n := r.AcceptedMinion("web1", "min8")
	r.ListenToBus()
	jid := r.Publish("*", "test.ping").Str("jid")
	n.Ask("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0, "success", true)
	n.Ask("_register_resources", "resources", value.NewMap("ssh", []any{"r1"}), "resource_grains", value.NewMap())
	want := map[string][2]string{
		"salt/job/" + jid + "/ret/web1": {"cmd", "_return"},
		"resource/refresh/web1":         {"Resource cache refresh", "web1"},
	}

	await.That(t, "both events", func() bool {
		for _, e := range r.NewEvents() {
			if w, ok := want[e.Tag]; ok && e.Data.Str(w[0]) != w[1] {
				t.Errorf("%s: %s", e.Tag, mastertest.PlainText(e.Data))
			}
			delete(want, e.Tag)
		}
		return len(want) == 0
	})
}
