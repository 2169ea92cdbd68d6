//go:build e2e && appliance

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/lbproxy"
	"saltern/master/value"
	"saltern/test/lab"
	"saltern/test/minion"
)

// load is what some minions ask, five times a second each, each on a connection of
// its own, and how long answers took.
type load struct {
	sent, failed, acked atomic.Int64

	mu    sync.Mutex
	worst time.Duration // since the last look
	why   map[string]int
}

func (r *load) run(ctx context.Context, m *minion.Minion) {
	every := time.NewTicker(200 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}

		tag := fmt.Sprintf("load/%s/%d", m.ID, r.sent.Add(1))
		began := time.Now()
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := m.Ask(one, "_minion_event", "tag", tag, "data", value.NewMap("x", 1), "pretag", nil)
		cancel()

		if ctx.Err() != nil {
			return
		}

		r.mu.Lock()
		if err != nil {
			r.failed.Add(1)
			r.why[err.Error()]++
		} else {
			r.acked.Add(1)
		}

		r.worst = max(r.worst, time.Since(began))
		r.mu.Unlock()
	}
}

// look gives what happened since the last look.
func (r *load) look() (failed int64, worst time.Duration, why map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed = r.failed.Swap(0)
	worst = r.worst
	why = maps.Clone(r.why)
	r.worst, r.why = 0, map[string]int{}
	return failed, worst, why
}

// TestLossUnderLoad: 2,000 minions listen and 300 requests a second come by one load
// balancer while masters behind it are killed, stopped and drained. Minions do not
// notice: connections stay, requests are answered, none is executed twice.
func TestLossUnderLoad(t *testing.T) {
	c := lab.StartCluster(t,
		lab.ClusterConfig{Network: lab.NewNetwork(t, "sll", "10.52"), Options: map[string]any{"log_level": "warning"}})
	s := enroll(t, c, 2000)
	front := c.Members[0]

	for _, m := range s.minions {
		m.at = 0
	}

	s.start(t)
	listening(t, c, 2000)
	everybody := s.ids()
	complete(t, front, everybody)

	events := listenIn(t, filepath.Join(front.Dir, "sock"))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()

	defer cancel()
	r := &load{why: map[string]int{}}
	for _, w := range s.minions[:60] {
		m, err := minion.New(w.Config)
		if err != nil {
			t.Fatal(err)
		}

		m.Session = w.Session
		wg.Go(func() {
			defer m.Close()
			r.run(ctx, m)
		})
	}

	lb := lbproxy.NewClient(front.LBSocket())
	up := func(victim *lab.Member) {
		t.Helper()
		victim.WaitReady(t)
		c.WaitWhole(t)
		lab.Eventually(t, 30*time.Second, "the balancer uses it", func() error {
			st, err := lb.Status(ctx)
			for _, b := range st.Backends {
				for _, p := range b.Ports {
					if b.Name == victim.Addr && p.State != lbproxy.Up {
						err = fmt.Errorf("%s is %s", p.Frontend, p.State)
					}
				}
			}

			return err
		})

		settled(t, 1500*time.Millisecond)
	}

	end := func(sig syscall.Signal) func(*lab.Member) {
		return func(m *lab.Member) {
			_ = syscall.Kill(m.Master.PID(), sig)
			ended(t, m.Master, 30*time.Second)
		}
	}

	again := func(m *lab.Member) { m.StartMaster(t); up(m) }
	drain := func(m *lab.Member) {
		if err := lb.Drain(ctx, m.Addr); err != nil {
			t.Fatal(err)
		}
	}

	undrain := func(m *lab.Member) {
		if err := lb.Undrain(ctx, m.Addr); err != nil {
			t.Fatal(err)
		}
		up(m)
	}

	settled(t, 3*time.Second) // the requests have their connections
	var alone time.Duration   // the slowest answer beside a job, at the pace of this machine
	for _, k := range []struct {
		name       string
		victim     int // the one before it has no sessions yet
		lose, back func(*lab.Member)
		held       bool // no connection may be closed, of those in the middle of a message either
	}{
		{"nothing", 0, func(*lab.Member) {}, func(*lab.Member) {}, true},
		{"SIGKILL", 1, end(syscall.SIGKILL), again, false},
		{"SIGTERM", 2, end(syscall.SIGTERM), again, true},
		{"drain", 0, drain, undrain, true},
		{"SIGKILL again", 1, end(syscall.SIGKILL), again, false},
	} {
		before, err := lb.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}

		_, _, _ = r.look()
		cuts := s.cuts.Load()
		began := time.Now()
		k.lose(c.Members[k.victim])
		jid := start(t, front, "s*", "test.ping")
		allReturned(t, front, jid, everybody)
		whole := time.Since(began)
		settled(t, 3*time.Second)
		after, err := lb.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}

		failed, worst, why := r.look()
		cut := s.cuts.Load() - cuts
		t.Logf("%s: %d sessions moved, %d of 2000 subscriptions and %d requests cut, the slowest answer %.2f s, a job complete %.1f s after it %v",
			k.name, after.Given-before.Given, cut, failed, worst.Seconds(), whole.Seconds(), why)

		if alone > 0 && after.Given == before.Given {
			t.Errorf("%s: no session was moved", k.name)
		}

		if cut+failed > 0 && k.held || cut+failed > 20 {
			t.Errorf("%s: %d subscriptions and %d requests were cut", k.name, cut, failed)
		}

		// A loss may cost a second more than the same job without one, and that job two.
		strictly(t, "the slowest answer at "+k.name, worst, cmp.Or(alone, time.Second)+time.Second)
		alone = cmp.Or(alone, worst)
		k.back(c.Members[k.victim])
	}

	cancel()
	wg.Wait()
	events.mu.Lock()
	defer events.mu.Unlock()

	times, twice := map[string]int{}, 0
	for _, tag := range events.tags {
		if strings.HasPrefix(tag, "load/") {
			times[tag]++
			if times[tag] == 2 {
				twice++
			}
		}
	}

	t.Logf("%d requests, %d answered, %d heard as events, %d of them twice", r.sent.Load(), r.acked.Load(),
		len(times), twice)
	if twice > 0 || len(times) < int(r.acked.Load())*9/10 {
		t.Errorf("%d of %d were executed twice", twice, len(times))
	}
}

// settled lets load go on for a while.
func settled(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
