package minions

import (
	"strings"
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
)

// auth_events_autosign_grains puts the grains that a minion shows at its sign-in
// into the event salt/auth, of the acts that the option names.
func TestGrainsInAuthEvents(t *testing.T) {
	for options, want := range map[string]string{
		"":                                      "",
		"auth_events_autosign_grains: [pend]\n": "web",
		"auth_events_autosign_grains: [accept]\n": "",
	} {
		r := mastertest.Start(t, options)
		r.ListenToBus()
		n := r.NewMinion("new1", "min6")
		load := n.SignInLoad()
		load.Set("autosign_grains", value.NewMap("role", "web"))
		n.ReadSignIn(load, r.AskValue(value.NewMap("enc", "clear", "load", load, "version", 3)))
		var data *value.Map
		await.That(t, "the event of the pending key", func() bool {
			for _, e := range r.NewEvents() {
				if e.Tag == "salt/auth" {
					data = e.Data
				}
			}
			return data != nil
		})

		if got := data.Map("autosign_grains").Str("role"); got != want || data.Str("act") != "pend" {
			t.Errorf("%q: event %s", strings.TrimSpace(options), mastertest.PlainText(data))
		}
	}
}
