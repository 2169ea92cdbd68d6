package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/internal/request"
	"saltern/master/keys"
)

// TestRefusedByAnotherMaster: what another master has refused is a cause here, unless this one knows something
// later.
func TestRefusedByAnotherMaster(t *testing.T) {
	clock := control.Refused{Why: "ts is outside of request_server_ttl", At: now.Add(-10 * time.Second), Count: 3}
	full := control.Refused{SignIn: true, Why: "full", At: clock.At, From: "10.0.0.7", Count: 1}
	for _, c := range []struct {
		name, code string
		refused    control.Refused
		set        func(f *facts)
	}{
		{"a request", "clock", clock, func(*facts) {}},
		{"a request of a connected minion", "clock", clock, func(f *facts) {
			f.places.Connected = true
			f.answer.asked = true
		}},
		{"a sign-in", "too many minions", full, func(*facts) {}},
		{"an earlier one", "old session", clock, func(f *facts) {
			f.refusal = &request.Refusal{Why: `opening the request of "web1"`, At: now, Count: 1}
		}},
		{"long before the minion was heard", "not connected", clock, func(f *facts) {
			f.places.Refused.At = now.Add(-time.Hour)
			f.places.Seen = now.Add(-30 * time.Minute)
		}},
		{"hostile text", "sign-in refused", control.Refused{SignIn: true, Why: "\x1b[2J\n" + strings.Repeat("x", 1<<16),
			At: now, From: "no address"}, func(*facts) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := facts{id: "web1", now: now, hasKey: true, key: keys.Entry{State: keys.Accepted}}
			f.places.Refused = &c.refused
			c.set(&f)
			f.addRefused()
			got := causesOf(&f)
			if got[0].Code != c.code || len(got[0].Text) > 2*control.MaxRefused || strings.ContainsAny(got[0].Text, "\n\x1b") {
				t.Errorf("%.600s", fmt.Sprint(got))
			}
		})
	}
}
