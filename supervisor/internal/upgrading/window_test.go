package upgrading

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/image/bundle"
	"saltern/internal/audit"
	"saltern/internal/pause"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade"
	"saltern/supervisor/upgrade/rollout"
)

// windowed is a node with a window, whose clock, offer and upgrades the test has in hand.
type windowed struct {
	*Window
	ahead  time.Duration // of its clock
	offer  bundle.Manifest
	fault  error // instead of an offer
	nodes  []status.Node
	result rollout.Result
	takes  time.Duration // of an upgrade
	rolls  []string      // when they began, and whether a further node was allowed at their end
}

// newWindowed gives a node of three, at the beginning of synctest's time: Saturday,
// 2000-01-01 00:00 UTC.
func newWindowed(t *testing.T, name, opens string) *windowed {
	t.Helper()
	s := settings.Default(name)
	s.Upgrade = settings.Upgrade{URL: "https://files.example.net/v", Window: opens}
	w, err := s.Upgrade.Opens()
	if err != nil {
		t.Fatal(err)
	}

	f := &windowed{
		offer:  bundle.Manifest{Version: "2", Flavour: "cloud", Created: time.Now().AddDate(0, 0, -3)},
		result: rollout.Result{Code: rollout.Upgraded},
	}

	for _, n := range []string{"n1", "n2", "n3"} {
		f.nodes = append(f.nodes, status.Node{Name: n, This: n == name, State: "ready"})
	}

	runs := upgrade.Status{Version: "1", Created: time.Now().AddDate(0, -1, 0), Flavour: "cloud"}
	f.Window = &Window{
		env: child.Env{
			Settings: &s,
			Log:      slog.New(slog.DiscardHandler),
			Now:      func() time.Time { return time.Now().Add(f.ahead) },
		},
		opens:    w,
		status:   func() (upgrade.Status, error) { return runs, nil },
		offered:  func(context.Context, upgrade.Status) (bundle.Manifest, error) { return f.offer, f.fault },
		document: func() status.Document { return status.Document{Node: name, Nodes: f.nodes} },
		beginRoll: func(ctx context.Context, r *rollout.Roll) (<-chan rollout.Result, error) {
			began := time.Now()
			if r.Window != opens || r.Manifest.Version != f.offer.Version {
				t.Errorf("%+v", r)
			}

			_ = pause.For(t.Context(), f.takes)
			f.rolls = append(f.rolls, fmt.Sprintf("%s %v", began.Format("Mon 15:04"), r.May()))
			out := make(chan rollout.Result, 1)
			out <- f.result

			return out, nil
		},
	}

	return f
}

// runs has the window looked at for a while.
func (f *windowed) runs(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	f.Run(ctx)
}

func (f *windowed) said() string {
	u, found := f.Facts()
	if u == nil {
		return "nothing"
	}
	out := u.Result
	for _, p := range found {
		out += "; " + string(p.Code) + " " + p.Subject + " " + p.Cause
	}
	return out
}

func TestWindowLoop(t *testing.T) {
	const opens = "Sat 02:00-04:00"
	for name, c := range map[string]struct {
		node   string
		change func(f *windowed)
		lasts  time.Duration // 5h
		rolls  int
		first  string // when the first one began, at the earliest
		said   string
	}{
		"the first node drives": {rolls: 1, first: "Sat 02:0", said: "version 2: upgraded"},
		"it is not open":        {lasts: 119 * time.Minute, said: ""},
		"the second leaves it time": {
			node:  "n2",
			rolls: 1,
			first: "Sat 02:04",
			said:  "version 2: upgraded",
		},
		"the third drives if others do not": {
			node:  "n3",
			rolls: 1,
			first: "Sat 02:08",
			said:  "version 2: upgraded",
		},
		"a node that does not serve does not drive": {change: func(f *windowed) { f.nodes[0].State = "starting" }},
		"nothing newer": {change: func(f *windowed) { f.offer.Version, f.offer.Created = "1", time.Now().AddDate(0, -1, 0) }},
		"an older one":  {change: func(f *windowed) { f.offer.Created = time.Now().AddDate(-1, 0, 0) }},
		"too young":     {change: func(f *windowed) { f.env.Settings.Upgrade.Delay = 80 * time.Hour }},
		"old enough": {
			change: func(f *windowed) { f.env.Settings.Upgrade.Delay = 70 * time.Hour },
			rolls:  1,
			said:   "version 2: upgraded",
		},
		"no answer": {
			change: func(f *windowed) { f.fault = errors.New("not found") },
			said:   "; SCA-241  ask for a newer version: not found",
		},
		"a node went back: no more": {
			change: func(f *windowed) { f.result = rollout.Result{Code: rollout.Stopped, Cause: "n2 went back"} },
			rolls:  1,
			said:   "version 2: stopped; SCA-240 2 n2 went back",
		},
		"a node is away: again": {
			change: func(f *windowed) { f.result = rollout.Result{Code: rollout.Away, Cause: "n2 away"} },
			rolls:  9,
			said:   "version 2: away; SCA-241  version 2 cannot be installed: n2 away",
		},
		"a person is at it: again": {
			change: func(f *windowed) { f.result = rollout.Result{Code: rollout.Busy} },
			rolls:  9,
			said:   "version 2: busy",
		},
		"it closes meanwhile": {change: func(f *windowed) {
			f.takes = 3 * time.Hour
			f.result = rollout.Result{Code: rollout.Closed, Cause: "n2 is left"}
		}, rolls: 1, said: "version 2: closed; SCA-242 2 n2 is left"},
		"the next window goes on": {
			lasts:  8 * 24 * time.Hour,
			change: func(f *windowed) { f.result = rollout.Result{Code: rollout.Closed} },
			rolls:  2,
			said:   "version 2: closed; SCA-242 2 ",
		},
		"a clock that was put forward": {
			lasts:  time.Hour,
			change: func(f *windowed) { f.ahead = 2 * time.Hour },
			rolls:  1,
			first:  "Sat 00:0",
			said:   "version 2: upgraded",
		},
		"a clock that was put back": {
			lasts:  6 * time.Hour,
			change: func(f *windowed) { f.ahead = -3 * time.Hour },
			rolls:  1,
			first:  "Sat 05:0",
			said:   "version 2: upgraded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.node == "" {
					c.node = "n1"
				}

				if c.lasts == 0 {
					c.lasts = 5 * time.Hour
				}

				f := newWindowed(t, c.node, opens)
				if c.change != nil {
					c.change(f)
				}

				f.runs(t, c.lasts)
				if n := len(f.rolls); n != c.rolls && (c.rolls < 5 || n < 5 || n > 12) ||
					n > 0 && f.rolls[0] < c.first {
					t.Errorf("began %q, want %d at %s", f.rolls, c.rolls, c.first)
				}

				if got := f.said(); got != c.said {
					t.Errorf("says %q, want %q", got, c.said)
				}
			})
		})
	}
}

// A clock that is put forward out of the window lets no further node begin; put back into
// it, the upgrade goes on. The status says what is done meanwhile.
func TestWindowCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWindowed(t, "n1", "00:00-01:00")
		f.result = rollout.Result{Code: rollout.Closed}
		began := f.beginRoll
		f.beginRoll = func(ctx context.Context, r *rollout.Roll) (<-chan rollout.Result, error) {
			if u, _ := f.Facts(); !r.May() || !u.Open || u.Doing != "installs version 2" {
				t.Errorf("open: %v %+v", r.May(), u)
			}
			f.ahead = 2 * time.Hour
			return began(ctx, r)
		}

		for _, ahead := range []time.Duration{time.Minute, 2 * time.Hour, time.Minute} {
			f.ahead = ahead
			if err := f.tryInstall(t.Context()); err != nil {
				t.Fatal(err)
			}
			if u, _ := f.Facts(); u.Doing != "" || u.Result != "version 2: closed" {
				t.Errorf("%s: %+v", ahead, u)
			}
		}

		if got := strings.Join(f.rolls, ", "); got != "Sat 00:00 false, Sat 00:00 false" {
			t.Errorf("%s", got)
		}
	})
}

// What was done by itself is in the audit record, with how it ended.
func TestWindowAudited(t *testing.T) {
	rec := audit.Record{
		Actor:  audit.Actor{User: "upgrade.window", Proof: audit.Setting},
		Action: "cluster.upgrade",
		Object: "version 2",
		Op:     "x",
		Result: audit.Asked,
	}

	for code, want := range map[rollout.Code]audit.Result{
		rollout.Upgraded:    audit.OK,
		rollout.Unchanged:   audit.OK,
		rollout.Last:        audit.Started,
		rollout.Busy:        audit.Refused,
		rollout.Away:        audit.Refused,
		rollout.Refused:     audit.Refused,
		rollout.Stopped:     audit.Failed,
		rollout.Unwritten:   audit.Failed,
		rollout.Closed:      audit.Failed,
		rollout.Interrupted: audit.Failed,
	} {
		if got := recorded(rec, rollout.Result{
			Code:  code,
			Cause: "because",
		}); got.Result != want || got.Op != "x" || got.Object != "version 2" || got.Detail == "" {
			t.Errorf("%s: %+v", code, got)
		}
	}
}

// A machine that has no image has no window.
func TestWindowOfHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWindowed(t, "n1", "00:00-01:00")
		f.status = func() (upgrade.Status, error) { return upgrade.Status{}, upgrade.ErrNoSlots }
		f.Run(t.Context()) // returns
		if got := f.said(); got != "nothing" || len(f.rolls) != 0 {
			t.Errorf("%q %q", got, f.rolls)
		}
	})
	if u, found := (*Window)(nil).Facts(); u != nil || found != nil {
		t.Errorf("%+v %+v", u, found)
	}
}
