package options

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a node that decides about a trial as a real one does, without a master.
type fake struct {
	State
	files   func() []File // as it sees them now
	awayFor error
	faults  []Fault
	serves  bool          // with new options
	takes   time.Duration // to decide
	backs   bool          // goes back when it is asked
	log     *[]string
	name    string
	before  string
	decide  time.Time
	limit   time.Duration
	// For a moment it does not serve, or cannot be asked.
	dipFrom, dipUntil time.Time
	dipErr            error
}

func (f *fake) note(format string, args ...any) {
	*f.log = append(*f.log, f.name+" "+fmt.Sprintf(format, args...))
}

func (f *fake) settle() {
	if !f.Trying || time.Now().Before(f.decide) {
		return
	}
	f.Trying, f.Serving = false, true
	if f.serves {
		f.Running, f.LastGood = f.Wanted, ""
		return
	}
	f.LastGood = "it says nothing"
}

func (f *fake) state() (State, error) {
	f.settle()
	if f.files != nil {
		f.State.Files = f.files()
	}
	if now := time.Now(); now.Before(f.dipUntil) && !now.Before(f.dipFrom) {
		st := f.State
		st.Serving = false
		return st, f.dipErr
	}
	return f.State, f.awayFor
}

// asked is it as a Node: the embedded State has the name of a method.
type asked struct{ f *fake }

func (n asked) State(context.Context, bool) (State, error) { return n.f.state() }
func (n asked) Check(context.Context) (Findings, error) {
	return Findings{Faults: n.f.faults}, nil
}
func (n asked) Try(_ context.Context, mark string, limit time.Duration) error {
	f := n.f
	f.note("try %s", mark)
	if mark != f.Wanted {
		return ErrChanged
	}

	f.before = f.Running
	f.Trying = true
	f.Held = true
	f.limit = limit
	f.decide = time.Now().Add(f.takes)
	if !f.serves {
		f.decide = time.Now().Add(limit)
	}

	return nil
}
func (n asked) Back(_ context.Context, mark, why string) error {
	f := n.f
	f.note("back")
	if f.LastGood == "" {
		f.Running, f.LastGood = f.before, why
	}
	f.Held = false
	if !f.backs {
		return errors.New("the disk is full")
	}
	return nil
}
func (n asked) Keep(context.Context, string) error {
	n.f.note("keep")
	n.f.Held = false
	return nil
}

// turn counts.
type turn struct {
	held  error // why it is not had
	from  int   // the call from which on
	taken int
	given int
	until time.Time
	// lapses counts how often it had ended before it was taken again.
	lapses int
}

func (t *turn) Take(_ context.Context, until time.Time) error {
	t.taken++
	if t.held != nil && t.taken > t.from {
		return t.held
	}
	if !t.until.IsZero() && time.Now().After(t.until) {
		t.lapses++
	}
	t.until = until
	return nil
}
func (t *turn) Give(context.Context) error { t.given++; return nil }

// three nodes, the last is the one that was asked.
func three(change func(n map[string]*fake)) (list []Target, log *[]string) {
	log = new([]string)
	all := map[string]*fake{}
	for _, name := range []string{"n1", "n2", "n3"} {
		all[name] = &fake{name: name, log: log, serves: true, backs: true, takes: 3 * time.Second,
			State: State{Files: []File{{"a.conf", "1"}}, Wanted: "new-" + name, Running: "old-" + name, Serving: true}}
		list = append(list, Target{name, asked{all[name]}})
	}
	change(all)
	return list, log
}

func states(r Result) string {
	var out []string
	for _, n := range r.Nodes {
		out = append(out, string(n.State))
	}
	return strings.Join(out, ", ")
}

func TestRoll(t *testing.T) {
	done := func(f *fake) { f.Running = f.Wanted }
	for name, c := range map[string]struct {
		change func(n map[string]*fake)
		roll   Roll
		turn   turn
		code   Code
		states string
		log    string // what the nodes were asked to do
		cause  string // in it
		takes  time.Duration
	}{
		"all take them": {code: Applied, states: "new, new, new", takes: 9 * time.Second,
			log: "n1 try new-n1, n2 try new-n2, n3 try new-n3, n1 keep, n2 keep, n3 keep"},
		"a dry run": {roll: Roll{Dry: true}, code: Checked, states: "before, before, before"},
		"nothing to do": {change: func(n map[string]*fake) { done(n["n1"]); done(n["n2"]); done(n["n3"]) },
			code: Unchanged, states: "same, same, same"},
		"goes on where another one died": {change: func(n map[string]*fake) { done(n["n1"]); n["n1"].Held = true },
			code: Applied, states: "same, new, new", log: "n2 try new-n2, n3 try new-n3, n1 keep, n2 keep, n3 keep"},
		"last good options are tried again": {
			change: func(n map[string]*fake) { done(n["n1"]); n["n1"].LastGood = "no" },
			code:   Applied,
			states: "new, new, new",
		},
		"a fault on one": {
			change: func(n map[string]*fake) {
				n["n2"].faults = []Fault{{
					File: "a.conf",
					Line: 3,
					Text: "a.conf:3: no",
				}}
			},
			code:   Wrong,
			states: "before, before, before",
			cause:  "wrong on n2",
		},
		"the first does not serve": {change: func(n map[string]*fake) { n["n1"].serves = false },
			code: Stopped, states: "last good, before, before", log: "n1 try new-n1, n1 back", cause: "n1 does not serve with the new options: it says nothing", takes: 60 * time.Second},
		"the second does not serve": {change: func(n map[string]*fake) { n["n2"].serves = false },
			code: Stopped, states: "last good, last good, before", log: "n1 try new-n1, n2 try new-n2, n2 back, n1 back"},
		"those of the roll that died go back as well": {change: func(n map[string]*fake) {
			done(n["n1"])
			n["n1"].Held = true
			n["n2"].serves = false
		},
			code: Stopped, states: "last good, last good, before", log: "n2 try new-n2, n2 back, n1 back"},
		"those with them for long keep them": {
			change: func(n map[string]*fake) { done(n["n1"]); n["n2"].serves = false },
			code:   Stopped,
			states: "same, last good, before",
			log:    "n2 try new-n2, n2 back",
		},
		"one does not go back": {change: func(n map[string]*fake) {
			n["n2"].serves = false
			n["n1"].backs = false
		},
			code: Stopped, states: "unknown, last good, before"},
		"one is away": {change: func(n map[string]*fake) { n["n2"].awayFor = errors.New("no route") },
			code: Away, states: "unknown, left out, unknown", cause: "n2 cannot be asked: no route"},
		"one does not serve": {
			change: func(n map[string]*fake) { n["n2"].Serving = false },
			code:   Away,
			cause:  "applianced status on n2",
		},
		"a start that is under way is waited for": {
			change: func(n map[string]*fake) { n["n2"].Trying, n["n2"].decide = true, time.Now().Add(5*time.Second) },
			code:   Applied,
			states: "new, same, new",
			takes:  11 * time.Second,
		},
		"a start that does not end": {
			change: func(n map[string]*fake) { n["n2"].Trying, n["n2"].decide = true, time.Now().Add(time.Hour) },
			code:   Away,
			cause:  ErrTrying.Error(),
			takes:  trialTakes,
		},
		"without the one that is away": {
			change: func(n map[string]*fake) { n["n2"].awayFor = errors.New("no route") },
			roll:   Roll{Force: true},
			code:   Applied,
			states: "new, left out, new",
			log:    "n1 try new-n1, n3 try new-n3, n1 keep, n3 keep",
		},
		"the one that was asked is away": {
			change: func(n map[string]*fake) { n["n3"].awayFor = errors.New("it hangs") },
			roll:   Roll{Force: true},
			code:   Away,
		},
		"all are away": {change: func(n map[string]*fake) {
			n["n1"].Serving = false
			n["n2"].Serving = false
			n["n3"].Serving = false
		}, roll: Roll{Force: true}, code: Away},
		"an older version": {
			change: func(n map[string]*fake) { n["n1"].awayFor = ErrOld },
			code:   Away,
			cause:  "upgrade it first",
		},
		"another one has the turn": {
			turn:  turn{held: fmt.Errorf("%w: n2 restarts", ErrHeld)},
			code:  Busy,
			cause: "n2 restarts",
		},
		"the turn cannot be had": {
			turn:  turn{held: errors.New("the storage is away")},
			code:  Away,
			cause: "the storage is away",
		},
		"the turn is taken meanwhile": {
			turn:   turn{held: fmt.Errorf("%w: n2 restarts", ErrHeld), from: 2},
			code:   Lost,
			states: "new, before, before",
			log:    "n1 try new-n1",
		},
		"files differ for long": {
			change: func(n map[string]*fake) { n["n2"].State.Files = []File{{"b.conf", "1"}, {"a.conf", "1"}} },
			code:   Differs,
			cause:  "n2 does not see the same files as n3: b.conf",
			takes:  settleTakes,
		},
		"a copy that lags": {change: func(n map[string]*fake) {
			at := time.Now().Add(4 * time.Second)
			n["n1"].files = func() []File {
				if time.Now().Before(at) {
					return nil
				}
				return []File{{"a.conf", "1"}}
			}
		}, code: Applied, states: "new, new, new", takes: 13 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.change == nil {
					c.change = func(map[string]*fake) {}
				}

				r := c.roll
				var log *[]string
				r.Targets, log = three(c.change)
				r.Turn, r.Limit = &c.turn, time.Minute
				began := time.Now()
				got := r.Run(t.Context())
				took := time.Since(began)

				if got.Code != c.code || c.states != "" && states(got) != c.states ||
					!strings.Contains(got.Cause, c.cause) {
					t.Errorf("%s (%s): %s", got.Code, states(got), got.Cause)
				}

				if l := strings.Join(*log, ", "); c.log != "" && l != c.log ||
					!slices.Contains([]Code{Applied, Stopped, Lost}, c.code) && strings.Contains(l, "try") {
					t.Errorf("asked: %s", l)
				}

				if c.takes > 0 && (took < c.takes || took > c.takes+4*time.Second) {
					t.Errorf("took %s", took)
				}

				if had := !r.Dry && c.turn.taken > 0 &&
					(c.turn.held == nil || c.turn.from > 0); had != (c.turn.given == 1) {
					t.Errorf("the turn: %+v", c.turn)
				}
			})
		})
	}
}

// A node that does not serve or answer for a moment holds up a roll, which says what it
// waits for and keeps the turn; a problem that stays ends it.
func TestRollWaitsForMomentaryProblems(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		err   error
		code  Code
		log   string
		cause string
	}{
		"does not serve": {
			takes: 50 * time.Second,
			code:  Applied,
			log:   "n1 try new-n1, n2 try new-n2, n3 try new-n3, n1 keep, n2 keep, n3 keep",
		},
		"cannot be asked": {
			takes: 50 * time.Second,
			err:   errors.New("no route"),
			code:  Applied,
			log:   "n1 try new-n1, n2 try new-n2, n3 try new-n3, n1 keep, n2 keep, n3 keep",
		},
		"it stays": {
			takes: time.Hour,
			code:  Lost,
			log:   "n1 try new-n1",
			cause: "n3 serves no more, for 1m0s; no further master is restarted before it does",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				targets, log := three(func(n map[string]*fake) {
					n["n3"].dipFrom = time.Now().Add(2 * time.Second)
					n["n3"].dipUntil = n["n3"].dipFrom.Add(c.takes)
					n["n3"].dipErr = c.err
				})

				held := &turn{}
				var told []string
				r := Roll{Targets: targets, Turn: held, Limit: MinLimit, Tell: func(line string) {
					told = append(told, line)
				}}

				got := r.Run(t.Context())

				if got.Code != c.code || !strings.Contains(got.Cause, c.cause) {
					t.Errorf("%s: %s", got.Code, got.Cause)
				}

				if l := strings.Join(*log, ", "); l != c.log {
					t.Errorf("asked: %s", l)
				}

				if lines := strings.Join(told, "\n"); strings.Count(lines,
					"waiting up to 1m0s, before the master of n2 restarts: n3 does not serve") != 1 {
					t.Errorf("told: %s", lines)
				}

				if late := held.lapses; late != 0 || held.given != 1 {
					t.Errorf("the turn had ended %d times before it was taken again", late)
				}
			})
		})
	}
}

// Who drives is stopped between two nodes: the first keeps what it has, the second is
// not begun, the turn is given back; the same again goes on.
func TestRollIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		targets, log := three(func(map[string]*fake) {})
		ctx, cancel := context.WithCancel(t.Context())
		held := &turn{}
		r := Roll{Targets: targets, Turn: held, Limit: time.Minute, Tell: func(line string) {
			if strings.HasPrefix(line, "n1: serves") {
				cancel()
			}
		}}

		if got := r.Run(ctx); got.Code != Interrupted || states(got) != "new, before, before" || held.given != 1 {
			t.Errorf("%+v, turn %+v", got, held)
		}

		if left := time.Until(held.until); left > Holds(time.Minute) {
			t.Errorf("who dies keeps the turn for %s", left)
		}

		*log = nil
		again := Roll{Targets: targets, Turn: held, Limit: time.Minute}
		if got := again.Run(t.Context()); got.Code != Applied || states(got) != "same, new, new" {
			t.Errorf("again: %+v", got)
		}
	})
}

// A node that never answers again after it was asked to try holds up a roll for a
// bounded time.
func TestRollWaitsWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		targets, _ := three(func(n map[string]*fake) { n["n1"].takes = time.Hour })
		r := Roll{Targets: targets[:1], Limit: time.Minute}
		began := time.Now()
		got := r.Run(t.Context())
		if took := time.Since(began); got.Code != Stopped || took > Holds(time.Minute)+time.Minute {
			t.Errorf("after %s: %+v", took, got)
		}
	})
}
