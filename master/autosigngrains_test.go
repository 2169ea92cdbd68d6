package master

import (
	"strings"
	"testing"

	"saltern/master/value"
)

// auth_events_autosign_grains puts the grains that a minion shows at its sign-in
// into the event salt/auth, of the acts that the option names.
func TestGrainsInAuthEvents(t *testing.T) {
	for options, want := range map[string]string{
		"":                                      "",
		"auth_events_autosign_grains: [pend]\n": "web",
		"auth_events_autosign_grains: [accept]\n": "",
	} {
		r := startMaster(t, options)
		r.listen()
		n := r.newMinion("new1", "min6")
		load := n.signInLoad()
		load.Set("autosign_grains", value.NewMap("role", "web"))
		n.readSignIn(load, r.rawValue(value.NewMap("enc", "clear", "load", load, "version", 3)))
		var data *value.Map
		until(t, "the event of the pending key", func() bool {
			for _, e := range r.seen() {
				if e.Tag == "salt/auth" {
					data = e.Data
				}
			}
			return data != nil
		})

		if got := data.Map("autosign_grains").Str("role"); got != want || data.Str("act") != "pend" {
			t.Errorf("%q: event %s", strings.TrimSpace(options), plainText(data))
		}
	}
}
