//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/lbproxy"
	"saltern/test/lab"
)

// front is one load balancer before three masters, and minions of three
// releases that know nothing but its address. SALTERN_ROUNDS repeats the
// failures, SALTERN_STRICT=1 holds the times that a quiet machine keeps.
type front struct {
	t       *testing.T // of the whole story: what is started lives as long
	c       *lab.Cluster
	dir     string
	addr    string
	lb      *lab.Proc
	starts  int
	admin   *lbproxy.Client
	minions []*lab.Minion
}

func strict() bool { return os.Getenv("SALTERN_STRICT") == "1" }

// patience is how long something may take: want where times are held, else
// what a slow and busy machine may need.
func patience(want time.Duration) time.Duration {
	if strict() {
		return want
	}
	return max(8*want, 2*time.Minute)
}

func startFront(t *testing.T) *front {
	c := lab.StartCluster(t,
		lab.ClusterConfig{
			Network: lab.NewNetwork(t, "slb", "10.40"),
			Options: map[string]any{"auto_accept": true, "gather_job_timeout": 1},
		})

	f := &front{t: t, c: c, dir: lab.Dir(t)}
	first := c.Members[0].Addr
	f.addr = first[:strings.LastIndex(first, ".")] + ".254" // the test's own place on the network
	f.admin = lbproxy.NewClient(f.dir + "/admin.sock")
	f.startLB()

	for _, v := range lab.Versions() {
		f.minions = append(f.minions, c.StartMinion(t, "m"+strings.ReplaceAll(v, ".", "-"), v, f.addr, nil))
	}

	f.answers(t, "at the beginning", 2*time.Minute)
	return f
}

// startLB starts a load balancer, in the place of one that runs.
func (f *front) startLB() {
	f.t.Helper()
	var backends []map[string]any
	for _, m := range f.c.Members {
		backends = append(backends, m.Backend())
	}

	health := map[string]any{"slow_start": "1s"}
	if !strict() {
		health["timeout"] = "4s" // a starved machine must not make a slow master a dead one
	}

	conf, err := json.Marshal(map[string]any{
		"frontends": []map[string]any{
			{"name": "publish", "mode": "publish", "bind": []string{f.addr + ":4505"}},
			{"name": "request", "mode": "request", "bind": []string{f.addr + ":4506"}},
		},
		"backends": backends, "admin": map[string]any{
			"socket":   f.dir + "/admin.sock",
			"handover": f.dir + "/handover.sock",
		},
		// Three minions are few: one more than its share is an excess.
		"rebalance": map[string]any{"delay": "1s"}, "health": health,
	})
	if err != nil {
		f.t.Fatal(err)
	}

	lab.WriteTree(f.t, f.dir, map[string]string{"lb.yaml": string(conf)})
	f.starts++
	f.lb = lab.Start(f.t, "lb", filepath.Join(f.dir, fmt.Sprint("lb.out.", f.starts)),
		lab.Bin(f.t, "applianced"), "lb", "--config", f.dir+"/lb.yaml", "--log-format", "json")
}

// answers waits until all minions answer a job of a master that lives, and
// says how long it took.
func (f *front) answers(t *testing.T, what string, limit time.Duration, dead ...*lab.Member) {
	t.Helper()
	began := time.Now()
	var from *lab.Member
	for _, m := range f.c.Alive() {
		if from == nil && (len(dead) == 0 || m != dead[0]) {
			from = m
		}
	}

	// Each question costs a minion a process: on a slow machine they must not
	// come faster than they are answered.
	wait := "15"
	if strict() {
		wait = "4"
	}

	lab.Eventually(t, limit, "every minion answers "+what, func() error {
		got, err := from.JSON(t, "-t", wait, "*", "test.ping")
		for _, m := range f.minions {
			if err == nil && got[m.ID] != true {
				err = fmt.Errorf("%s gave %v", m.ID, got[m.ID])
			}
		}
		return err
	})

	t.Logf("%s: every minion answered after %.1f s", what, time.Since(began).Seconds())
	for _, m := range f.minions {
		if !m.Running() {
			t.Errorf("minion %s ended", m.ID)
		}
	}
}

// port gives what the load balancer says of a master's publish port.
func (f *front) port(t *testing.T, m *lab.Member) lbproxy.PortStatus {
	t.Helper()
	st, err := f.admin.Status(t.Context())
	if err != nil {
		return lbproxy.PortStatus{}
	}
	for _, b := range st.Backends {
		for _, p := range b.Ports {
			if b.Name == m.Addr && p.Frontend == "publish" {
				return p
			}
		}
	}
	return lbproxy.PortStatus{}
}

// victim waits until every master is up and has a minion, and gives one. The
// minions have answered by then: one that has just come sends its requests, and
// Salt's waits a minute for the answer to one that a lost host has taken along.
func (f *front) victim(t *testing.T, i int) *lab.Member {
	t.Helper()
	lab.Eventually(t, 90*time.Second, "a minion at each master", func() error {
		for _, m := range f.c.Members {
			if p := f.port(t, m); p.State != lbproxy.Up || p.Sessions != 1 {
				return fmt.Errorf("%s is %s with %d sessions", m.Addr, p.State, p.Sessions)
			}
		}
		return nil
	})
	f.answers(t, "before", patience(15*time.Second))
	return f.c.Members[i%len(f.c.Members)]
}

// moved waits until the load balancer has seen the failure and has no session
// left at the master.
func (f *front) moved(t *testing.T, m *lab.Member) {
	t.Helper()
	began := time.Now()
	var seen time.Time
	lab.Eventually(t, patience(15*time.Second), "no minion at the dead master", func() error {
		p := f.port(t, m)
		if seen.IsZero() && p.State == lbproxy.Down {
			seen = time.Now()
		}

		if p.State != lbproxy.Down || p.Sessions > 0 {
			return fmt.Errorf("%s with %d sessions: %s", p.State, p.Sessions, p.LastError)
		}

		return nil
	})

	after := time.Since(seen)
	t.Logf("seen after %.1f s, no session left %.1f s later", seen.Sub(began).Seconds(), after.Seconds())
	if after > patience(3*time.Second) {
		t.Errorf("sessions stayed at a dead master for %s", after)
	}
}

// publishes gives how many subscriptions have ended, and how many sessions were
// given to another master.
func (f *front) publishes(t *testing.T) (ended, given uint64) {
	t.Helper()
	st, err := f.admin.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, fe := range st.Frontends {
		for _, n := range fe.Ended {
			if fe.Mode == lbproxy.Publish {
				ended += n
			}
		}
	}
	return ended, st.Given
}

// unnoticed does something to a master at which a minion listens; the minion's
// connection must not end. A master that stands still is noticed late when the
// checks are patient; then minions miss its heartbeats and leave by themselves.
func (f *front) unnoticed(t *testing.T, still bool, something func()) {
	t.Helper()
	ended, given := f.publishes(t)
	something()
	e, g := f.publishes(t)
	t.Logf("%d subscriptions ended, %d sessions were given to another master", e-ended, g-given)
	if (e != ended || g == given) && (!still || strict()) {
		t.Error("a minion has noticed")
	}
}

// TestBalancerFailures: whatever happens to a master or to the load balancer,
// every minion answers again, none is restarted, and none loses its
// subscription while the load balancer lives; and a master that is only slow
// keeps its minions.
func TestBalancerFailures(t *testing.T) {
	t.Parallel()
	f := startFront(t)
	rounds, _ := strconv.Atoi(os.Getenv("SALTERN_ROUNDS"))
	for i := range max(rounds, 1) {
		f.run("killed", func(t *testing.T) {
			m := f.victim(t, i)
			f.unnoticed(t, false, func() {
				m.Master.Kill()
				f.moved(t, m)
				f.answers(t, "after a master was killed", patience(15*time.Second), m)
			})

			m.StartMaster(f.t)
			m.WaitReady(t)
		})

		f.run("stopped", func(t *testing.T) {
			m := f.victim(t, i+1)
			signal(t, m.Master, syscall.SIGSTOP)
			defer signal(t, m.Master, syscall.SIGCONT)
			f.unnoticed(t, true, func() {
				f.moved(t, m)
				f.answers(t, "after a master stood still", patience(15*time.Second), m)
			})
		})

		f.run("vanished", func(t *testing.T) {
			m := f.victim(t, i+2)
			f.c.Config.Network.Cut(t, m.Addr)
			defer f.c.Config.Network.Mend(t, m.Addr)
			f.unnoticed(t, true, func() {
				f.moved(t, m)
				f.answers(t, "after a host vanished", patience(15*time.Second), m)
			})
		})

		f.run("drained", func(t *testing.T) {
			m := f.victim(t, i)
			f.unnoticed(t, false, func() {
				if err := f.admin.Drain(t.Context(), m.Addr); err != nil {
					t.Fatal(err)
				}

				lab.Eventually(t, 60*time.Second, "no minion at the drained master", func() error {
					if p := f.port(t, m); p.Sessions > 0 {
						return fmt.Errorf("%d sessions", p.Sessions)
					}
					return nil
				})

				f.answers(t, "after a master was drained", patience(15*time.Second), m)
			})

			if err := f.admin.Undrain(t.Context(), m.Addr); err != nil {
				t.Fatal(err)
			}
		})

		f.run("slow", func(t *testing.T) {
			m := f.victim(t, i)
			before := f.port(t, m)
			for range 8 { // runs half of the time
				signal(t, m.Master, syscall.SIGSTOP)
				time.Sleep(300 * time.Millisecond)
				signal(t, m.Master, syscall.SIGCONT)
				time.Sleep(300 * time.Millisecond)
			}

			if p := f.port(t, m); p.Sessions != before.Sessions || p.Cuts != before.Cuts || p.State != lbproxy.Up {
				t.Errorf("a slow master lost its minion: %+v, was %+v", p, before)
			}
		})

		f.run("balancer replaced", func(t *testing.T) {
			f.victim(t, i)
			old := f.lb
			f.startLB()
			lab.Eventually(t, 60*time.Second, "the old one has ended", func() error {
				if old.Running() {
					return fmt.Errorf("process %d runs", old.PID())
				}
				return nil
			})

			f.answers(t, "after the load balancer was replaced", patience(15*time.Second))
		})

		f.run("balancer killed", func(t *testing.T) {
			f.victim(t, i)
			f.lb.Kill()
			f.startLB()
			f.answers(t, "after the load balancer was killed", patience(15*time.Second))
		})
	}
}

// run runs one scenario; after a failed one the state is not known, and the
// others are left out.
func (f *front) run(name string, test func(*testing.T)) {
	if !f.t.Failed() {
		f.t.Run(name, test)
	}
}

func signal(t *testing.T, p *lab.Proc, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(p.PID(), s); err != nil {
		t.Fatal(err)
	}
}
