//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/lbproxy"
	"saltern/test/lab"
)

// kill is a way to lose a node.
type kill struct {
	name  string
	all   bool // it holds all sessions of all minions
	lose  func(t *testing.T, n *lab.Network, m *lab.Member)
	again func(t *testing.T, n *lab.Network, m *lab.Member)
	gone  func(t *testing.T, m *lab.Member) // waits until the virtual address would move
	// limit of the first complete test.ping afterwards, on a machine with
	// nothing else to do.
	limit time.Duration
	// job is how long the job runs meanwhile, in seconds. It outlasts the time
	// in which a minion finds a new connection: minions of 3007 and 3008 lose
	// a return that they send just then (RequestClient is closed).
	job int
}

func kills() []kill {
	// A node whose processes are dead is there to say so: its kernel ends the
	// connections.
	dead := func(t *testing.T, m *lab.Member) {
		lab.Eventually(t, 30*time.Second, m.Addr+" has ended", func() error {
			if !m.Ended() {
				return fmt.Errorf("it runs")
			}
			return nil
		})
		time.Sleep(time.Second)
	}

	cut := func(*testing.T, *lab.Member) { time.Sleep(time.Second) }
	restart := func(t *testing.T, _ *lab.Network, m *lab.Member) {
		m.StartMaster(t)
		m.StartLB(t)
		m.WaitReady(t)
	}

	signal := func(s syscall.Signal) func(*testing.T, *lab.Network, *lab.Member) {
		return func(_ *testing.T, _ *lab.Network, m *lab.Member) { m.Signal(s) }
	}
	return []kill{
		{"SIGKILL of the node with all sessions", true, signal(syscall.SIGKILL), restart, dead, 15 * time.Second, 15},
		{"link down", false, func(t *testing.T, n *lab.Network, m *lab.Member) { n.Cut(t, m.Addr) },
			func(t *testing.T, n *lab.Network, m *lab.Member) { n.Mend(t, m.Addr) }, cut, 20 * time.Second, 25},
		{"SIGTERM", false, signal(syscall.SIGTERM), restart, dead, 15 * time.Second, 15},
		{"link down of the node with all sessions", true,
			func(t *testing.T, n *lab.Network, m *lab.Member) { n.Cut(t, m.Addr) },
			func(t *testing.T, n *lab.Network, m *lab.Member) { n.Mend(t, m.Addr) }, cut, 20 * time.Second, 25},
		{"SIGKILL", false, signal(syscall.SIGKILL), restart, dead, 15 * time.Second, 15},
	}
}

// TestClusterKills: node after node is lost and comes back while jobs run on
// three real minions and a swarm of 300. Every job returns from all minions,
// everybody answers soon, and what was acknowledged is on every node.
//
// SALTERN_KILLS sets the number of losses, 3 by default; of more than twelve one
// falls into a rotation of the key, one into the join of a fourth master and one into
// its removal. SALTERN_STRICT=1 asserts the times, on a quiet machine.
func TestClusterKills(t *testing.T) {
	net := lab.NewNetwork(t, "scl", "10.50")
	c := lab.StartCluster(t,
		lab.ClusterConfig{
			Network: net,
			Options: map[string]any{"auto_accept": true, "gather_job_timeout": 2, "log_level": "warning"},
		})

	net.Move(t, c.Members[0].Addr)
	s := enroll(t, c, 300)
	var others []string
	for _, v := range lab.Versions() {
		id := "m" + strings.ReplaceAll(v, ".", "-")
		others = append(others, id)
		c.StartMinion(t, id, v, net.Virtual(), nil)
	}

	s.start(t)
	everybody := append(s.ids(), others...)
	listening(t, c, len(everybody))
	for _, m := range c.Members {
		complete(t, m, everybody)
	}

	nodes := c.Members // without the fourth
	rounds, _ := strconv.Atoi(os.Getenv("SALTERN_KILLS"))
	if rounds == 0 {
		rounds = 3
	}

	for i := range rounds {
		k := kills()[i%len(kills())]
		victim, survivor := c.Members[i%3], c.Members[(i+1)%3]
		if k.all {
			gather(t, c, victim, len(everybody))
		}

		jid := start(t, survivor, "*", "test.sleep", strconv.Itoa(k.job))
		time.Sleep(500 * time.Millisecond) // the job runs
		turn := s.refresh(t, survivor)
		done := func() {}
		if rounds > 12 {
			done = meanwhile(t, c, survivor, i)
		}

		k.lose(t, net, victim)
		began := time.Now()
		k.gone(t, victim)
		net.Move(t, survivor.Addr)
		scripted := complete(t, survivor, everybody).Sub(began)
		took := time.Since(began)
		t.Logf("loss %d, %s (%s): test.ping complete after %.1f s, of the swarm alone after %.1f s", i+1,
			victim.Addr, k.name, took.Seconds(), scripted.Seconds())
		strictly(t, "first complete test.ping after "+k.name, took, k.limit)

		for _, m := range []*lab.Member{survivor, c.Members[(i+2)%3]} {
			allReturned(t, m, jid, everybody)
			allReturned(t, m, turn, s.ids())
		}

		s.alike(t, turn, []*lab.Member{survivor, c.Members[(i+2)%3]}, false)
		k.again(t, net, victim)
		c.WaitWhole(t)
		done()
		allReturned(t, victim, jid, everybody)
		s.alike(t, turn, nodes, true)
	}

	complete(t, c.Members[rounds%3], everybody)
	s.stop()
	jobs, acked, again := s.h.count()
	t.Logf("%d losses, %d jobs, %d returns acknowledged to the swarm, %d after more than one try, %d sign-ins",
		rounds, jobs, acked, again, s.signIns.Load())
	s.h.judgeCluster(t, c, nodes, others)
}

// meanwhile begins what is to go on while the node of a round is lost, and returns
// what waits for its end when that one is back.
func meanwhile(t *testing.T, c *lab.Cluster, by *lab.Member, round int) (done func()) {
	t.Helper()
	switch round {
	case 6:
		gen := generation(t, by)
		asked := make(chan lab.Result, 1)
		go func() { asked <- by.SaltRun(t, "cluster.rotate") }()
		return func() {
			t.Helper()
			if r := <-asked; r.Code != 0 {
				t.Errorf("cluster.rotate while a node is lost: %+v", r)
			}
			agree(t, c, gen+1)
		}
	case 11:
		d := c.Prepare(t)
		d.Configure(t, map[string]any{"cluster_peers": []string{by.Addr}, "auto_accept": true, "log_level": "warning"})
		d.StartMaster(t)
		return func() {
			t.Helper()
			d.WaitReady(t)
			c.WaitWhole(t)
		}
	case 12:
		d := c.Members[3]
		asked := make(chan lab.Result, 1)
		go func() { asked <- by.SaltRun(t, "cluster.remove", d.Addr, "--out", "json") }()
		return func() {
			t.Helper()
			if r := <-asked; r.Code != 0 || !strings.Contains(r.Out, `"removed"`) {
				t.Errorf("cluster.remove while a node is lost: %+v", r)
			}
			ended(t, d.Master, time.Minute)
		}
	}

	return func() {}
}

// start starts a job as the command line does and does not wait for returns.
func start(t *testing.T, m *lab.Member, tgt, fun string, args ...string) (jid string) {
	t.Helper()
	lab.Eventually(t, 30*time.Second, "start of "+fun, func() (err error) {
		jid, err = tryStart(t, m, tgt, fun, args...)
		return err
	})
	return jid
}

func tryStart(t *testing.T, m *lab.Member, tgt, fun string, args ...string) (jid string, err error) {
	t.Helper()
	r := m.Salt(t, append([]string{"--async", "--out", "json", tgt, fun}, args...)...)
	_, jid, _ = strings.Cut(r.Out, "job ID: ")
	if len(jid) < 20 {
		return "", fmt.Errorf("salt --async: %+v", r)
	}
	return jid[:20], nil
}

// complete publishes test.ping again and again until everybody has answered one
// of them. It tells when the scripted minions had; real ones start a process
// for each job.
func complete(t *testing.T, m *lab.Member, ids []string) (scripted time.Time) {
	t.Helper()
	var s []string
	for _, id := range ids {
		if strings.HasPrefix(id, "s") {
			s = append(s, id)
		}
	}

	var open []string
	var next, said time.Time
	every := 3 * time.Second
	lab.Eventually(t, 3*time.Minute, "complete test.ping from "+m.Addr, func() (err error) {
		if now := time.Now(); now.After(next) {
			jid, err := tryStart(t, m, "*", "test.ping")
			if err != nil {
				return err
			}
			open, next = append(open, jid), now.Add(every)
			open = open[max(0, len(open)-12):] // late answers count as well
			every += every / 4                 // and are not made later by more jobs
		}

		for _, jid := range open {
			got, lerr := m.Lookup(t, jid)
			if scripted.IsZero() && everyone(got, lerr, s) == nil {
				scripted = time.Now()
			}
			if err = everyone(got, lerr, ids); err == nil {
				return nil
			}
		}

		m.Untangle(t)
		if time.Since(said) > time.Second {
			said = time.Now()
			t.Logf("%s: test.ping from %s: %s", time.Now().Format("15:04:05.000"), m.Addr, err)
		}

		return err
	})

	return scripted
}

func allReturned(t *testing.T, m *lab.Member, jid string, ids []string) {
	t.Helper()
	lab.Eventually(t, 3*time.Minute, "all returns of job "+jid+" on "+m.Addr, func() error {
		got, err := m.Lookup(t, jid)
		m.Untangle(t)
		return everyone(got, err, m.Reliable(ids))
	})
}

func everyone(got map[string]any, err error, ids []string) error {
	if err != nil {
		return err
	}
	var missing []string
	for _, id := range ids {
		if v, ok := got[id]; !ok || v == false {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d of %d are missing: %.10s", len(missing), len(ids), missing[:min(len(missing), 10)])
	}
	return nil
}

// gather moves all sessions to one node.
func gather(t *testing.T, c *lab.Cluster, to *lab.Member, all int) {
	t.Helper()
	ctx := context.Background()
	for _, m := range c.Members[:c.Config.Nodes] {
		cl := lbproxy.NewClient(m.LBSocket())
		for _, o := range c.Members[:c.Config.Nodes] {
			if o == to {
				continue
			}

			if err := cl.Drain(ctx, o.Addr); err != nil {
				t.Fatal(err)
			}

			if _, err := cl.Cut(ctx, o.Addr, ""); err != nil {
				t.Fatal(err)
			}
		}
	}

	lab.Eventually(t, 60*time.Second, "all listen at "+to.Addr, func() error {
		to.Untangle(t)
		_, subscribers, err := to.View()
		if err != nil {
			return err
		}
		if subscribers < all {
			return fmt.Errorf("%d do", subscribers)
		}

		return nil
	})

	for _, m := range c.Members[:c.Config.Nodes] {
		cl := lbproxy.NewClient(m.LBSocket())
		for _, o := range c.Members[:c.Config.Nodes] {
			if err := cl.Undrain(ctx, o.Addr); err != nil {
				t.Fatal(err)
			}
		}
	}
}
