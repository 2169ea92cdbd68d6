package console

import (
	"net/http"
	"net/url"
	"testing"

	"saltern/master/runner"
)

// TestGrainsOfPages: pages refresh themselves, so the grains that they ask for are for the caller alone, and those
// of a whole target are few.
func TestGrainsOfPages(t *testing.T) {
	for _, kind := range targetTypes() {
		for _, tt := range []struct {
			path  string
			whole bool // the page shows all grains
		}{
			{"/minions?tgt=os:Debian", false},
			{"/minions?tgt=os:Debian&columns=os,roles&sort=os&more=1", false},
			{"/minions?tgt=os:Debian&format=csv", false},
			{"/run?tgt=os:Debian&look=1", false},
			{"/run?tgt=os:Debian&fun=test.ping&look=1", false},
			{"/minion?id=web1", true},
		} {
			path := tt.path + "&type=" + url.QueryEscape(kind.Name)
			m := &recorded{answers: theAnswers()}
			ask(t, newConsole(t, ""), m, http.MethodGet, path, nil)
			for _, low := range m.lows {
				if low.Str("fun") != "cache.grains" {
					continue
				}
				if !low.Bool(runner.Alone) {
					t.Errorf("%s: all who read events get the grains", path)
				}
				if _, few := low.Get(runner.Only); !few && !tt.whole {
					t.Errorf("%s: all grains of the target", path)
				}
			}
		}
	}
}
