package lbproxy

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestVerdict(t *testing.T) {
	const (
		u = gradeUp
		j = gradeJoining
		w = gradeUnwell
		s = gradeSilent
		g = gradeGone
	)

	for _, c := range []struct {
		name string
		in   []grade
		want []State
	}{
		{"first result counts", []grade{u}, []State{Up}},
		{"first failure counts", []grade{g}, []State{Down}},
		{"one failure is forgiven", []grade{u, s, u, s, u}, []State{Up, Up, Up, Up, Up}},
		{"fall", []grade{u, s, s}, []State{Up, Up, Down}},
		{"rise", []grade{g, u, u}, []State{Down, Down, Up}},
		{"rise starts anew", []grade{g, u, s, u, u}, []State{Down, Down, Down, Down, Up}},
		{"joining after down", []grade{g, j, u, u}, []State{Down, Joining, Joining, Up}},
		{"joining while up needs two", []grade{u, j, u, j, j}, []State{Up, Up, Up, Up, Joining}},
		{"joining then gone", []grade{j, g}, []State{Joining, Down}},
		{"unwell while up needs two", []grade{u, w, u, w, w, u, u}, []State{Up, Up, Up, Up, Unwell, Unwell, Up}},
		{"unwell then gone needs two", []grade{w, g, g}, []State{Unwell, Unwell, Down}},
		{"unwell after down", []grade{g, w}, []State{Down, Unwell}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := verdict{rise: 2, fall: 2}
			var got []State
			for _, r := range c.in {
				v.applyGrade(r)
				got = append(got, v.state)
			}

			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// rig is a checker with a scripted probe in a bubble of fake time.
type rig struct {
	*checker
	mu     sync.Mutex
	err    error
	hang   bool
	probes int
	events []string
	base   time.Time
}

func newRig() *rig {
	r := &rig{base: time.Now()}
	cfg := Config{Frontends: []Frontend{{Name: "f", Mode: Request, Bind: []string{"127.0.0.1:1"}}}}
	if err := cfg.Validate(); err != nil {
		panic(err)
	}

	fe := &frontend{proxy: &Proxy{cfg: cfg}, cfg: cfg.Frontends[0], mode: Request}
	m := &member{frontend: fe, backend: &backend{name: "b"}, evidence: make(chan evidence, 16)}
	r.checker = &checker{
		member:  m,
		cfg:     &cfg.Health,
		log:     slog.New(slog.DiscardHandler),
		verdict: verdict{rise: 2, fall: 2},
		clock:   func() int64 { return int64(time.Since(r.base)) },
		probe: func(ctx context.Context) error {
			r.mu.Lock()
			r.probes++
			err, hang := r.err, r.hang
			r.mu.Unlock()

			if hang {
				<-ctx.Done()
				return errSilent
			}

			return err
		},
		judged: func(state State, changed bool, _ grade, _ int64) {
			if changed {
				r.note(state.String())
			}
		},
	}

	return r
}

func (r *rig) note(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, s)
}

func (r *rig) set(err error, hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.hang = err, hang
}

func (r *rig) checksIn(d time.Duration) int {
	r.mu.Lock()
	n := r.probes
	r.mu.Unlock()
	time.Sleep(d)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.probes - n
}

func inBubble(t *testing.T, f func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.run(ctx); close(done) }()
		synctest.Wait()
		f(t, r)
		cancel()
		<-done
	})
}

func TestCheckerPace(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		time.Sleep(500 * time.Millisecond) // not at the edge of an interval
		if n := r.checksIn(10 * time.Second); n != 10 {
			t.Errorf("%d checks in 10 s while up", n)
		}

		r.set(connectError{syscall.ECONNREFUSED}, false)
		time.Sleep(1800 * time.Millisecond)
		if r.member.State() != Down {
			t.Errorf("after refusals: %v", r.member.State())
		}

		if n := r.checksIn(10 * time.Second); n != 10 {
			t.Errorf("%d checks in 10 s while down", n)
		}

		r.set(nil, false)
		time.Sleep(1800 * time.Millisecond)
		if r.member.State() != Up {
			t.Errorf("after answers: %v", r.member.State())
		}
	})
}

func TestCheckerHang(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.set(nil, true)
		// At worst: wait for the next check, its limit, a fast interval, another limit.
		time.Sleep(3300 * time.Millisecond)
		if r.member.State() != Down {
			t.Errorf("hanging master is %v", r.member.State())
		}
	})
}

func TestCheckerPassiveEvidence(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		time.Sleep(500 * time.Millisecond)
		r.member.reportEvidence(evidence{err: errSilent})
		synctest.Wait()
		time.Sleep(time.Millisecond)

		if r.probes != 2 {
			t.Errorf("evidence asked for %d checks", r.probes-1)
		}

		// A burst of evidence is not a burst of checks.
		for range 100 {
			r.member.reportEvidence(evidence{err: errSilent})
			time.Sleep(time.Millisecond)
		}

		if r.probes > 3 {
			t.Errorf("%d checks in 100 ms", r.probes)
		}

		for range passiveFall {
			r.member.reportEvidence(evidence{err: connectError{syscall.ECONNREFUSED}, certain: true})
		}

		synctest.Wait()
		if r.member.State() != Down {
			t.Errorf("after %d refused dials: %v", passiveFall, r.member.State())
		}
	})
}

func TestCheckerMaint(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.member.backend.maintenance.Store(true)
		time.Sleep(2 * time.Second)
		if n := r.checksIn(10 * time.Second); n != 0 {
			t.Errorf("%d checks in maint", n)
		}
	})
}

// TestCheckerAdaptiveLimit: a backend whose checks are slow gets more time.
func TestCheckerAdaptiveLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.probe = func(ctx context.Context) error {
			dl, ok := ctx.Deadline()
			if !ok {
				return errors.New("no limit")
			}

			if left := time.Until(dl); left > 5*time.Second {
				return errors.New("limit above five times the least")
			}

			select {
			case <-time.After(800 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return errSilent
			}
		}

		for range 5 {
			if err := r.checkOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		slow := func(ctx context.Context) error {
			select {
			case <-time.After(2900 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return errSilent
			}
		}

		r.probe = slow
		if err := r.checkOnce(t.Context()); err != nil {
			t.Errorf("a check of 2.9 s after some of 0.8 s: %v", err)
		}
	})
}

// TestCheckerStarved: a limit that strikes much too late says that we did not
// run, not that the backend is gone; but not for ever.
func TestCheckerStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.verdict.state = Up
		r.probe = func(ctx context.Context) error {
			time.Sleep(3 * time.Second) // the limit is one second
			return errSilent
		}

		for i := range maxStarved {
			if err := r.checkOnce(t.Context()); !errors.Is(err, errStarved) {
				t.Fatalf("check %d: %v", i, err)
			}
		}

		if err := r.checkOnce(t.Context()); errors.Is(err, errStarved) || err == nil {
			t.Errorf("set aside for ever: %v", err)
		}
	})
}
