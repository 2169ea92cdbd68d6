package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/image/bundle"
)

var (
	built   = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	version = bundle.Manifest{Version: "2", Flavour: "cloud", Created: built}
)

// fake is a machine.
type fake struct {
	State
	name string
	log  *[]string

	awayFor    error  // it cannot be asked
	installErr string // why it does not take the version
	turnErr    string // why it does not restart
	forgets    bool   // its supervisor is started anew before it restarts
	bad        bool   // the version does not become well here
	boots      time.Duration
	dies       func() // what its restart ends beside, on the node that drives
	downUntil  time.Time
	trialUntil time.Time
	turnUntil  time.Time
	// For a moment it does not serve, or cannot be asked.
	dipFrom, dipUntil time.Time
	dipErr            error
}

func (f *fake) note(what string) { *f.log = append(*f.log, f.name+" "+what) }

// fakeNode is a fake as a Node: it embeds a State.
type fakeNode struct{ f *fake }

func (n fakeNode) State(context.Context) (State, error) {
	f, now := n.f, time.Now()
	if f.awayFor != nil {
		return State{}, f.awayFor
	}
	if now.Before(f.downUntil) {
		return State{}, errors.New("no route to host")
	}

	f.Serving = !f.downUntil.IsZero() || f.Serving
	if now.Before(f.dipUntil) && !now.Before(f.dipFrom) {
		st := f.State
		st.Serving, st.Trouble = false, "SCA-404 the volume hangs"
		return st, f.dipErr
	}

	f.Trying, f.Turn = now.Before(f.trialUntil), now.Before(f.turnUntil)
	return f.State, nil
}

func (n fakeNode) Install(_ context.Context, r io.Reader) error {
	f := n.f
	f.note("write")
	if b, err := io.ReadAll(r); err != nil || string(b) != "bundle" {
		return fmt.Errorf("%q %w", b, err)
	}
	if f.installErr != "" {
		return errors.New(f.installErr)
	}
	f.Next, f.NextCreated = version.Version, version.Created
	return nil
}

func (n fakeNode) Restart(_ context.Context, v string) error {
	f, now := n.f, time.Now()
	f.note("restart " + v)
	if f.turnErr != "" || f.forgets {
		f.Fault = f.turnErr
		return nil
	}

	f.Boot, f.Next = f.Boot+"'", ""
	f.downUntil = now.Add(f.boots)
	if !f.bad {
		f.Version, f.Created = version.Version, version.Created
		f.trialUntil = f.downUntil.Add(2 * time.Minute)
		f.turnUntil = f.trialUntil.Add(20 * time.Second)
	}

	if f.dies != nil {
		f.dies()
	}

	return nil
}

// three machines, the last is the one that drives.
func three(change func(n map[string]*fake)) (list []Target, log *[]string) {
	log = new([]string)
	all := map[string]*fake{}
	for _, name := range []string{"n1", "n2", "n3"} {
		all[name] = &fake{name: name, log: log, boots: time.Minute,
			State: State{
				Image:   true,
				Version: "1",
				Created: built.AddDate(0, -1, 0),
				Flavour: "cloud",
				Keys:    1,
				Boot:    name,
				Serving: true,
				Minions: 7,
			}}

		list = append(list, Target{name, fakeNode{all[name]}})
	}

	change(all)
	return list, log
}

func places(r Result) string {
	var out []string
	for _, n := range r.Nodes {
		out = append(out, string(n.Where))
	}
	return strings.Join(out, ", ")
}

func open() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("bundle")), nil }

func TestRoll(t *testing.T) {
	has := func(f *fake) { f.Version, f.Created = version.Version, version.Created }
	all := "n1 write, n2 write, n3 write, n1 restart 2, n2 restart 2, n3 restart 2"
	for name, c := range map[string]struct {
		change func(n map[string]*fake)
		dry    bool
		code   Code
		places string
		log    string
		cause  string
	}{
		"all take it": {code: Upgraded, places: "new, new, new", log: all},
		"a dry run":   {dry: true, code: Checked, places: "before, before, before"},
		"nothing to do": {
			change: func(n map[string]*fake) { has(n["n1"]); has(n["n2"]); has(n["n3"]) },
			code:   Unchanged,
			places: "same, same, same",
		},
		"goes on after one": {
			change: func(n map[string]*fake) { has(n["n1"]) },
			code:   Upgraded,
			places: "same, new, new",
			log:    "n2 write, n3 write, n2 restart 2, n3 restart 2",
		},
		"goes on with what was written": {change: func(n map[string]*fake) {
			has(n["n1"])
			n["n2"].Next = "2"
			n["n2"].NextCreated = built
		},
			code: Upgraded, places: "same, new, new", log: "n3 write, n2 restart 2, n3 restart 2"},
		"another build of that number is written anew": {
			change: func(n map[string]*fake) { n["n2"].Next, n["n2"].NextCreated = "2", built.AddDate(0, 0, -1) },
			code:   Upgraded,
			places: "new, new, new",
			log:    all,
		},
		"goes on while one is on trial": {
			change: func(n map[string]*fake) { has(n["n1"]); n["n1"].trialUntil = time.Now().Add(time.Minute) },
			code:   Upgraded,
			places: "new, new, new",
			log:    "n2 write, n3 write, n2 restart 2, n3 restart 2",
		},
		"one cannot write it": {
			change: func(n map[string]*fake) { n["n2"].installErr = "no space left" },
			code:   Unwritten,
			places: "written, before, before",
			log:    "n1 write, n2 write",
			cause:  "n2 did not take the version, and no node was restarted: no space left",
		},
		"the first goes back": {
			change: func(n map[string]*fake) { n["n1"].bad = true },
			code:   Stopped,
			places: "back, written, written",
			log:    "n1 write, n2 write, n3 write, n1 restart 2",
			cause:  "n1 went back to version 1",
		},
		"the second goes back": {
			change: func(n map[string]*fake) { n["n2"].bad = true },
			code:   Stopped,
			places: "new, back, written",
			cause:  "n2 went back to version 1",
		},
		"one is never back": {
			change: func(n map[string]*fake) { n["n2"].boots = 24 * time.Hour },
			code:   Stopped,
			places: "new, restart, written",
			cause:  "n2 does not serve with version 2 after 1h30m0s: no route to host",
		},
		"one does not get the turn": {
			change: func(n map[string]*fake) { n["n2"].turnErr = "n9 has the turn" },
			code:   Stopped,
			places: "new, restart, written",
			cause:  "n2 did not restart: n9 has the turn",
		},
		"one forgets it": {
			change: func(n map[string]*fake) { n["n2"].forgets = true },
			code:   Stopped,
			cause:  "n2 did not restart: its supervisor was restarted meanwhile",
		},
		"one is away": {
			change: func(n map[string]*fake) { n["n2"].awayFor = errors.New("no route") },
			code:   Away,
			cause:  "n2 cannot be asked: no route",
		},
		"one does not serve": {
			change: func(n map[string]*fake) { n["n2"].Serving = false },
			code:   Away,
			cause:  "n2 does not serve",
		},
		"one is of a version that knows nothing of it": {
			change: func(n map[string]*fake) { n["n2"].awayFor = ErrOld },
			code:   Away,
			cause:  "upgrade it on itself first",
		},
		"one trusts no key": {
			change: func(n map[string]*fake) { n["n1"].Keys = 0 },
			code:   Refused,
			cause:  "n1 trusts no key for upgrades: put",
		},
		"one has another kernel": {
			change: func(n map[string]*fake) { n["n1"].Flavour = "generic" },
			code:   Refused,
			cause:  "n1 has the kernel generic",
		},
		"one runs a newer one": {
			change: func(n map[string]*fake) { n["n1"].Created = built.AddDate(0, 0, 1) },
			code:   Refused,
			cause:  "n1 runs version 1, built 2026-11-02T00:00:00Z, after this one",
		},
		"one tries another one": {
			change: func(n map[string]*fake) { n["n1"].trialUntil = time.Now().Add(time.Hour) },
			code:   Busy,
			cause:  "n1 has version 1 on trial",
		},
		"another node drives one": {
			change: func(n map[string]*fake) { n["n1"].Drives = "upgrades all nodes to version 3 since 10:00:00 UTC" },
			code:   Busy,
			cause:  "n1 upgrades all nodes to version 3 since 10:00:00 UTC",
		},
		"this node drives it": {
			change: func(n map[string]*fake) { n["n3"].Drives = "upgrades all" },
			code:   Upgraded,
		},
		"one writes a version": {
			change: func(n map[string]*fake) { n["n1"].Busy = "writes a version" },
			code:   Busy,
			cause:  "n1 writes a version",
		},
		"a host among them": {
			change: func(n map[string]*fake) { n["n1"].State = State{Serving: true} },
			code:   Upgraded,
			places: "host, new, new",
			log:    "n2 write, n3 write, n2 restart 2, n3 restart 2",
		},
		"hosts only": {change: func(n map[string]*fake) {
			n["n1"].Image = false
			n["n2"].Image = false
			n["n3"].Image = false
		}, code: Refused, places: "host, host, host", cause: "package manager"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.change == nil {
					c.change = func(map[string]*fake) {}
				}

				targets, log := three(c.change)
				r := Roll{Targets: targets, Manifest: version, Open: open, Dry: c.dry}
				got := r.Run(t.Context())
				if got.Code != c.code || c.places != "" && places(got) != c.places ||
					!strings.Contains(got.Cause, c.cause) {
					t.Errorf("%s (%s): %s", got.Code, places(got), got.Cause)
				}

				l := strings.Join(*log, ", ")
				if c.log != "" && l != c.log ||
					slices.Contains([]Code{Refused, Busy, Away, Checked, Unchanged}, c.code) && l != "" {
					t.Errorf("asked: %s", l)
				}
			})
		})
	}
}

// A node that does not serve or answer for a moment holds up a roll, which says what it
// waits for; a problem that stays ends it.
func TestRollWaitsForMomentaryProblems(t *testing.T) {
	gone := errors.New("no route to host")
	for name, c := range map[string]struct {
		who      string
		from     time.Duration // after the begin of the roll
		takes    time.Duration
		err      error
		code     Code
		told     string
		cause    string
		restarts int
	}{
		"at the begin": {
			who:      "n2",
			takes:    15 * time.Second,
			code:     Upgraded,
			told:     "waiting: n2 does not serve (SCA-404 the volume hangs): applianced status there",
			restarts: 3,
		},
		"away at the begin": {
			who:      "n2",
			takes:    15 * time.Second,
			err:      gone,
			code:     Upgraded,
			told:     "waiting: n2 cannot be asked: no route to host",
			restarts: 3,
		},
		"it stays at the begin": {
			who:   "n2",
			takes: time.Hour,
			code:  Away,
			cause: "n2 does not serve (SCA-404 the volume hangs)",
		},
		"an old one is no moment": {who: "n2", takes: 5 * time.Second, err: ErrOld, code: Away},
		"one beside": {
			who:      "n3",
			from:     3 * time.Minute,
			takes:    100 * time.Second,
			code:     Upgraded,
			told:     "waiting up to 2m0s, before n2 restarts, for n3: does not serve (SCA-404 the volume hangs)",
			restarts: 3,
		},
		"one before": {
			who:      "n1",
			from:     350 * time.Second,
			takes:    100 * time.Second,
			code:     Upgraded,
			told:     "before n3 restarts, for n1: does not serve",
			restarts: 3,
		},
		"the next cannot be asked": {
			who:      "n2",
			from:     3 * time.Minute,
			takes:    100 * time.Second,
			err:      gone,
			code:     Upgraded,
			told:     "for n2: cannot be asked: no route to host",
			restarts: 3,
		},
		"it stays": {
			who:      "n3",
			from:     3 * time.Minute,
			takes:    time.Hour,
			code:     Stopped,
			cause:    "n3 serves no more, for 2m0s (does not serve (SCA-404 the volume hangs)); no further node is restarted",
			restarts: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				targets, log := three(func(n map[string]*fake) {
					f := n[c.who]
					f.dipFrom = time.Now().Add(c.from)
					f.dipUntil = f.dipFrom.Add(c.takes)
					f.dipErr = c.err
				})

				var told []string
				r := Roll{
					Targets:  targets,
					Manifest: version,
					Open:     open,
					Tell:     func(line string) { told = append(told, line) },
				}

				got := r.Run(t.Context())

				if got.Code != c.code || !strings.Contains(got.Cause, c.cause) {
					t.Errorf("%s: %s", got.Code, got.Cause)
				}

				if lines := strings.Join(told, "\n"); !strings.Contains(lines, c.told) {
					t.Errorf("told: %s", lines)
				}

				if n := strings.Count(strings.Join(*log, ", "), "restart"); n != c.restarts {
					t.Errorf("%d restarts: %q", n, *log)
				}

				for _, n := range got.Nodes {
					if got.Code == Upgraded && n.Cause != "" {
						t.Errorf("%s: a cause that has gone: %s", n.Name, n.Cause)
					}
				}
			})
		})
	}
}

// No node is touched after the window has closed while the roll waited for another one.
func TestRollThatWaitedMindsTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		targets, log := three(func(n map[string]*fake) {
			n["n3"].dipFrom = time.Now().Add(3 * time.Minute)
			n["n3"].dipUntil = n["n3"].dipFrom.Add(100 * time.Second)
		})

		closes := time.Now().Add(230 * time.Second)
		r := Roll{
			Targets:  targets,
			Manifest: version,
			Open:     open,
			May:      func() bool { return time.Now().Before(closes) },
		}

		if got := r.Run(t.Context()); got.Code != Closed || places(got) != "new, written, written" {
			t.Errorf("%s (%s): %s, %q", got.Code, places(got), got.Cause, *log)
		}
	})
}

// A roll that the window makes wants the same window of each node, leaves a version alone
// that a node went back from, and begins with no further node when the window has closed.
func TestRollInWindow(t *testing.T) {
	const window = "Sun 02:00-04:00"
	has := func(f *fake) { f.Version, f.Created = version.Version, version.Created }
	all := "n1 write, n2 write, n3 write, n1 restart 2, n2 restart 2, n3 restart 2"
	for name, c := range map[string]struct {
		change     func(n map[string]*fake)
		open       time.Duration // from the begin of the roll
		code       Code
		places     string
		log, cause string
	}{
		"all take it": {open: time.Hour, code: Upgraded, log: all},
		"it closes while one restarts": {
			open:   3 * time.Second,
			code:   Closed,
			places: "new, written, written",
			log:    "n1 write, n2 write, n3 write, n1 restart 2",
			cause:  "the window closed before n2 had version 2",
		},
		"it closes at once": {
			open:   -1,
			code:   Closed,
			places: "before, before, before",
			cause:  "the window closed before n1",
		},
		"the next goes on": {open: time.Hour, change: func(n map[string]*fake) {
			has(n["n1"])
			n["n2"].Next = "2"
			n["n2"].NextCreated = built
		},
			code: Upgraded, places: "same, new, new", log: "n3 write, n2 restart 2, n3 restart 2"},
		"one went back": {open: time.Hour, change: func(n map[string]*fake) {
			has(n["n1"])
			n["n2"].Left = "2"
			n["n2"].LeftCreated = built
		},
			code: Stopped, places: "before, back, before", cause: "n2 went back from version 2 to 1, and does not try it again by itself"},
		"one went back from another build": {
			open:   time.Hour,
			change: func(n map[string]*fake) { n["n2"].Left, n["n2"].LeftCreated = "2", built.AddDate(0, 0, -1) },
			code:   Upgraded,
		},
		"one has another window": {
			open:   time.Hour,
			change: func(n map[string]*fake) { n["n2"].Window = "Mon 02:00-04:00" },
			code:   Refused,
			cause:  "n2 has another upgrade.window (Mon 02:00-04:00) than the node that drives (Sun 02:00-04:00): write the same one",
		},
		"one has none": {
			open:   time.Hour,
			change: func(n map[string]*fake) { n["n2"].Window = "" },
			code:   Refused,
			cause:  "n2 has another upgrade.window (none)",
		},
		"one upgraded has none": {
			open:   time.Hour,
			change: func(n map[string]*fake) { has(n["n2"]); n["n2"].Window = "" },
			code:   Upgraded,
		},
		"a second driver": {
			open:   time.Hour,
			change: func(n map[string]*fake) { n["n1"].Drives = "upgrades all nodes to version 2" },
			code:   Busy,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				targets, log := three(func(n map[string]*fake) {
					for _, f := range n {
						f.Window = window
					}
					if c.change != nil {
						c.change(n)
					}
				})

				closes := time.Now().Add(c.open)
				r := Roll{
					Targets:  targets,
					Manifest: version,
					Open:     open,
					Window:   window,
					May:      func() bool { return time.Now().Before(closes) },
				}

				got := r.Run(t.Context())
				if got.Code != c.code || c.places != "" && places(got) != c.places ||
					!strings.Contains(got.Cause, c.cause) {
					t.Errorf("%s (%s): %s", got.Code, places(got), got.Cause)
				}

				if l := strings.Join(*log, ", "); c.log != "" && l != c.log ||
					c.log == "" && c.code != Upgraded && l != "" {
					t.Errorf("asked: %s", l)
				}
			})
		})
	}
}

// The restart of the node that drives is the last step, and ends the roll. What is left
// is done by the same command, on any node.
func TestDriverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var last *fake
		targets, log := three(func(n map[string]*fake) { last = n["n3"]; last.dies = cancel })
		r := Roll{Targets: targets, Manifest: version, Open: open}
		if got := r.Run(ctx); got.Code != Last || places(got) != "new, new, restart" {
			t.Errorf("%+v", got)
		}

		*log = nil
		last.dies = nil
		time.Sleep(10 * time.Minute)
		if got := r.Run(t.Context()); got.Code != Unchanged {
			t.Errorf("afterwards: %+v", got)
		}
	})
}

// Who drives is stopped in the middle; another node goes on while the machine that was
// restarted is away.
func TestDriverDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		targets, log := three(func(n map[string]*fake) { n["n1"].dies = cancel })
		r := Roll{Targets: targets, Manifest: version, Open: open}
		if got := r.Run(ctx); got.Code != Interrupted || places(got) != "restart, written, written" {
			t.Errorf("%+v", got)
		}

		*log = nil
		other := Roll{Targets: []Target{targets[0], targets[2], targets[1]}, Manifest: version, Open: open}
		if got := other.Run(t.Context()); got.Code != Away || len(*log) != 0 {
			t.Errorf("while it is away: %+v, %q", got, *log)
		}

		time.Sleep(70 * time.Second)
		if got := other.Run(t.Context()); got.Code != Upgraded ||
			strings.Join(*log, ", ") != "n3 restart 2, n2 restart 2" {
			t.Errorf("%+v, %q", got, *log)
		}
	})
}
