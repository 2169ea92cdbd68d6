package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/test/await"
)

// hanging is a check that a test controls.
type hanging struct {
	mu    sync.Mutex
	check func(context.Context) error
}

func (h *hanging) set(check func(context.Context) error) { h.mu.Lock(); h.check = check; h.mu.Unlock() }

func (h *hanging) run(ctx context.Context) error {
	h.mu.Lock()
	check := h.check
	h.mu.Unlock()
	return check(ctx)
}

var errSilent = errors.New("timed out")

func answers(context.Context) error { return nil }
func refuses(context.Context) error { return errors.New("connection refused") }
func silent(ctx context.Context) error {
	<-ctx.Done()
	return errSilent
}

// late is a check on a machine that did not run this process for a while.
func late(context.Context) error {
	time.Sleep(10 * time.Second)
	return errSilent
}

func TestHang(t *testing.T) {
	for name, c := range map[string]struct {
		check    func(context.Context) error
		first    func(context.Context) error // until it is up; nil: it answers
		alive    func(time.Time) bool
		restarts int
	}{
		"silent":               {check: silent, restarts: 1},
		"refused":              {check: refuses},
		"starved or suspended": {check: late},
		"silent and busy": {
			check: silent,
			alive: func(since time.Time) bool { return time.Since(since) < time.Minute },
		},
		"silent from the start": {check: silent, first: silent},
		"now and then": {check: func(ctx context.Context) error {
			if time.Now().Second()%13 < 4 {
				return nil
			}
			return silent(ctx)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hanging{check: answers}
				if c.first != nil {
					h.check = c.first
				}

				f := &fake{}
				m, stop := start(t, Spec{Name: "master", Runner: f, Health: &Health{Check: h.run, Fall: 3,
					Hang: &Hang{Silent: func(err error) bool { return errors.Is(err, errSilent) }, Alive: c.alive}}})
				time.Sleep(time.Minute)
				h.set(c.check)
				hung := time.Now()
				time.Sleep(19 * time.Second)
				h.set(answers)

				if c.restarts == 0 {
					h.set(c.check)
					time.Sleep(10 * time.Minute)
				}

				time.Sleep(10 * time.Second)
				i := m.Services(99)[0]
				if i.Restarts != c.restarts {
					t.Fatalf("%d restarts: %+v", i.Restarts, i)
				}

				if c.restarts > 0 {
					if i.LastExit != "did not answer for 15s (timed out)" || i.State != Running {
						t.Errorf("%+v", i)
					}

					if again := f.began()[1].Sub(hung); again < 15*time.Second || again > 18*time.Second {
						t.Errorf("restarted after %s", again)
					}

					var events []string
					for _, e := range i.Events {
						events = append(events, e.Message)
					}

					// When the checks fall on the minute differs from run to run.
					said := regexp.MustCompile(`(?m)^stopping it: it did not answer for 15s \(timed out\)\nended after 1m1[5-8]s: did not answer for 15s \(timed out\); next start in 500ms$`)
					if !said.MatchString(strings.Join(events, "\n")) {
						t.Errorf("events %q", events)
					}
				}

				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A process that is stopped is killed, though it cannot take SIGTERM, and long
// before the time of an ordinary stop.
func TestHungProcessIsKilled(t *testing.T) {
	t.Parallel()
	p := &Process{Path: "/bin/sh", Args: []string{"-c", "kill -STOP $$; sleep 60"}, StopTimeout: time.Minute}
	ctx, cancel := context.WithCancelCause(t.Context())
	began := time.Now()
	pid := make(chan int, 1)
	go func() {
		stat := fmt.Sprintf("/proc/%d/stat", <-pid)
		await.Within(time.Minute, func() bool { b, _ := os.ReadFile(stat); return strings.Contains(string(b), ") T ") })
		cancel(&hangError{took: time.Minute, last: errSilent})
	}()

	if err := p.Run(ctx, func(n int) { pid <- n }); err != nil {
		t.Error(err)
	}

	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %s", d)
	}
}
