package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// fake is a Runner that follows a script: how long each run lasts (0: until
// asked to stop) and how it ends.
type fake struct {
	mu     sync.Mutex
	script []time.Duration
	starts []time.Time
	name   string
	ended  func(name string)
}

func (f *fake) Run(ctx context.Context, started func(int)) error {
	f.mu.Lock()
	f.starts = append(f.starts, time.Now())
	var d time.Duration
	if len(f.script) > 0 {
		d, f.script = f.script[0], f.script[1:]
	}
	f.mu.Unlock()

	started(100)
	if f.ended != nil {
		defer func() { f.ended(f.name) }()
	}

	if d == 0 {
		<-ctx.Done()
		return nil
	}

	select {
	case <-ctx.Done():
		return nil
	case <-time.After(d):
		return &ExitError{Code: 3}
	}
}

func (f *fake) began() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.starts)
}

func states(events []Event) string {
	var out []string
	for _, e := range events {
		out = append(out, string(e.State))
	}
	return strings.Join(slices.Compact(out), " ")
}

func start(t *testing.T, specs ...Spec) (*Manager, func() error) {
	t.Helper()
	m := NewManager(quiet(), time.Now)
	if err := m.Add(specs...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	res := make(chan error, 1)
	go func() { res <- m.Run(ctx, time.Minute) }()
	return m, func() error { cancel(); return <-res }
}

func TestRestartsWithGrowingPauseAndForgives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := time.Second
		f := &fake{script: []time.Duration{s, s, s, s, 100 * s, s, 0}}
		m, stop := start(t,
			Spec{Name: "a", Runner: f, Backoff: Backoff{Min: s, Max: 4 * s, Factor: 2, Stable: time.Minute}})
		time.Sleep(10 * time.Minute)
		var gaps []string
		starts := f.began()
		for i := 1; i < len(starts); i++ {
			gaps = append(gaps, starts[i].Sub(starts[i-1]).String())
		}

		// Each gap is the run and the pause after it: pauses 1 2 4 4, then the
		// stable run begins again at 1, then 2.
		if got, want := fmt.Sprint(gaps), "[2s 3s 5s 5s 1m41s 3s]"; got != want {
			t.Errorf("gaps between starts %s, want %s", got, want)
		}

		i := m.Services(99)[0]
		if i.State != Running || i.Restarts != 6 || i.PID != 100 || i.LastExit != "exit code 3" {
			t.Errorf("info %+v", i)
		}

		if err := stop(); err != nil {
			t.Error(err)
		}

		if got, want := states(m.Services(5)[0].Events), "backoff starting running stopping stopped"; got != want {
			t.Errorf("history %q, want %q", got, want)
		}
	})
}

// TestWaitIsSaidOnce: what waits for a service that waits itself does not say "waiting" of it twice.
func TestWaitIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		check := func(context.Context) error { return errors.New("connection refused") }
		m, stop := start(t,
			Spec{Name: "api", After: []string{"master"}, Runner: &fake{name: "api"}},
			Spec{Name: "master", After: []string{"storage"}, Runner: &fake{name: "master"}},
			Spec{Name: "storage", Runner: &fake{name: "storage"}, Health: &Health{Check: check}})
		time.Sleep(5 * time.Second)

		const want = "waiting for service master to be up (waiting for service storage to be up (starting: "
		for _, s := range m.Services(0) {
			if s.Name == "api" && !strings.HasPrefix(s.Message, want) {
				t.Errorf("api says %q", s.Message)
			}
		}

		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestWaitsForDependencyAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := errors.New("connection refused")
		var order []string
		var mu sync.Mutex
		ended := func(n string) { mu.Lock(); order = append(order, n); mu.Unlock() }
		check := func(context.Context) error { mu.Lock(); defer mu.Unlock(); return ready }
		m, stop := start(t,
			Spec{Name: "lb", After: []string{"master"}, Runner: &fake{name: "lb", ended: ended}},
			Spec{Name: "master", Runner: &fake{name: "master", ended: ended}, Health: &Health{Check: check}})
		time.Sleep(5 * time.Second)
		got := m.Services(0)
		if got[0].Name != "master" || got[0].State != Starting || got[1].State != Waiting {
			t.Fatalf("%+v", got)
		}

		for _, want := range []string{"waiting for service master to be up", "connection refused"} {
			if !strings.Contains(got[1].Message, want) {
				t.Errorf("message %q does not say %q", got[1].Message, want)
			}
		}

		mu.Lock()
		ready = nil
		mu.Unlock()

		time.Sleep(5 * time.Second)
		for _, i := range m.Services(0) {
			if i.State != Running {
				t.Errorf("%s is %s: %s", i.Name, i.State, i.Message)
			}
		}

		if err := stop(); err != nil {
			t.Error(err)
		}

		if fmt.Sprint(order) != "[lb master]" {
			t.Errorf("stopped in order %v, want lb before master", order)
		}
	})
}

func TestHealthFallAndRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var bad error
		setBad := func(e error) { mu.Lock(); bad = e; mu.Unlock() }
		m, stop := start(t, Spec{Name: "a", Runner: &fake{}, Health: &Health{Fall: 3, Interval: time.Second,
			Check: func(context.Context) error { mu.Lock(); defer mu.Unlock(); return bad }}})
		time.Sleep(1500 * time.Millisecond)
		setBad(errors.New("no answer"))
		time.Sleep(2 * time.Second) // two checks failed

		if s := m.Services(0)[0].State; s != Running {
			t.Errorf("after two failures %s, want running", s)
		}

		time.Sleep(time.Second)
		if i := m.Services(0)[0]; i.State != Failing || !strings.Contains(i.Message, "no answer") {
			t.Errorf("after three failures %+v", i)
		}

		setBad(nil)
		time.Sleep(1500 * time.Millisecond)
		if s := m.Services(0)[0].State; s != Running {
			t.Errorf("after a pass %s, want running", s)
		}

		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestPrepareIsTriedAgainAndNotACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		f := &fake{}
		m, stop := start(t, Spec{Name: "a", Runner: f, Prepare: func(context.Context) error {
			n++
			if n < 4 {
				return errors.New("master.d/x.conf: line 2: wrong")
			}
			return nil
		}})

		time.Sleep(3 * time.Second)
		if i := m.Services(0)[0]; i.State != Waiting ||
			i.Message != "not started: master.d/x.conf: line 2: wrong" || i.Failures != 0 {
			t.Errorf("%+v", i)
		}

		time.Sleep(10 * time.Second)
		if i := m.Services(0)[0]; i.State != Running || i.Restarts != 0 || len(f.began()) != 1 {
			t.Errorf("%+v", i)
		}

		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestFailedPreparationIsSaidOnce: while the preparation fails again and again, the state says why
// and does not alternate with conditions that hold soon. A condition that holds at once is not
// mentioned at all.
func TestFailedPreparationIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon := Poll("the volume", time.Second, time.Second, func(context.Context) error {
			time.Sleep(300 * time.Millisecond)
			return nil
		})
		m, stop := start(t,
			Spec{Name: "a", Runner: &fake{}, Wait: All(), Prepare: func(context.Context) error { return errors.New("no disk") }},
			Spec{Name: "b", Runner: &fake{}, Wait: All(soon), Prepare: func(context.Context) error { return errors.New("no disk") }})
		time.Sleep(time.Hour)
		for i, want := range []string{
			"[not started yet not started: no disk]",
			"[not started yet waiting for the volume not started: no disk]",
		} {
			var said []string
			for _, e := range m.Services(99)[i].Events {
				said = append(said, e.Message)
			}
			if fmt.Sprint(said) != want {
				t.Errorf("%v, not %s", said, want)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestLongPreparationIsSaid: a service whose start is prepared for long says that, not what it did
// before.
func TestLongPreparationIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, stop := start(t, Spec{Name: "a", Runner: &fake{}, Prepare: func(context.Context) error {
			time.Sleep(10 * time.Second)
			return nil
		}})
		time.Sleep(11 * time.Second)
		if err := m.Restart("a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if i := m.Services(0)[0]; i.State != Waiting || i.Message != "preparing the start" {
			t.Errorf("%s: %s", i.State, i.Message)
		}
		time.Sleep(time.Minute)
		if i := m.Services(0)[0]; i.State != Running {
			t.Errorf("%s: %s", i.State, i.Message)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestRestartBeforeTheStart: a restart that is asked for while the service waits for its start is that
// start. It does not shorten the pause after a later crash.
func TestRestartBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := time.Second
		began := time.Now()
		late := Poll("noon", s, s, func(context.Context) error {
			if time.Since(began) < 5*s {
				return errors.New("it is morning")
			}
			return nil
		})
		f := &fake{script: []time.Duration{s, 0}}
		m, stop := start(t, Spec{Name: "a", Runner: f, Wait: late, Backoff: Backoff{Min: 20 * s, Max: 20 * s}})
		time.Sleep(s)
		if err := m.Restart("a"); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Minute)
		starts := f.began()
		if len(starts) != 2 || starts[1].Sub(starts[0]) < 20*s {
			t.Errorf("it started at %v", starts)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestDescribedOnce: a condition whose check names what is missing is described by that alone, and
// not by its subject and then by the same words in brackets.
func TestDescribedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		missing := func(context.Context) error {
			if time.Since(began) < time.Minute {
				return errors.New("the volume to take writes (1 of 3 copies is up)")
			}
			return nil
		}
		c := PollMissing("the volume", time.Second, time.Second, missing)
		var said []string
		for range 2 {
			said = append(said, c.String())
			ctx, end := context.WithTimeout(t.Context(), 3*time.Second)
			_ = c.Wait(ctx)
			end()
		}

		if fmt.Sprint(said) != "[the volume the volume to take writes (1 of 3 copies is up)]" {
			t.Errorf("%q", said)
		}
	})
}

func TestRestartOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{script: []time.Duration{0, time.Second, 0}}
		m, stop := start(t, Spec{Name: "a", Runner: f, Backoff: Backoff{Min: time.Hour, Max: time.Hour}})
		time.Sleep(time.Second)
		if err := m.Restart("a"); err != nil { // ends a run
			t.Fatal(err)
		}

		time.Sleep(2 * time.Second) // the second run has ended, an hour of pause began
		if err := m.Restart("a"); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Second)
		if n := len(f.began()); n != 3 {
			t.Errorf("%d starts, want 3", n)
		}

		if err := m.Restart("b"); !errors.Is(err, ErrUnknown) {
			t.Errorf("restart of an unknown service: %v", err)
		}

		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

type stubborn struct{ release chan struct{} }

func (s stubborn) Run(_ context.Context, started func(int)) error {
	started(1)
	<-s.release
	return nil
}

func TestStopNamesWhatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stubborn{make(chan struct{})}
		_, stop := start(t, Spec{Name: "good", Runner: &fake{}}, Spec{Name: "bad", Runner: s})
		time.Sleep(time.Second)
		err := stop()
		if err == nil || !strings.Contains(err.Error(), "service bad did not stop within 1m0s") ||
			strings.Contains(err.Error(), "good") {
			t.Errorf("stop: %v", err)
		}
		close(s.release)
	})
}

func TestHistoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := make([]time.Duration, 500)
		for i := range script {
			script[i] = time.Millisecond
		}

		m, stop := start(t,
			Spec{Name: "a", Runner: &fake{script: script}, Backoff: Backoff{Min: time.Second, Max: time.Second}})
		time.Sleep(5 * time.Minute)
		if n := len(m.Services(1000)[0].Events); n != historySize {
			t.Errorf("%d events kept, want %d", n, historySize)
		}

		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestManagerRefusesBadGraphs(t *testing.T) {
	r := &fake{}
	for name, specs := range map[string][]Spec{
		"needs itself":   {{Name: "a", Runner: r, After: []string{"b"}}, {Name: "b", Runner: r, After: []string{"a"}}},
		"no such":        {{Name: "a", Runner: r, After: []string{"zz"}}},
		"used twice":     {{Name: "a", Runner: r}, {Name: "a", Runner: r}},
		"or no runner":   {{Name: "a"}},
		"name missing":   {{Runner: r}},
		`"a" needs "zz"`: {{Name: "a", Runner: r, After: []string{"zz"}}},
	} {
		if err := NewManager(quiet(), time.Now).Add(specs...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
