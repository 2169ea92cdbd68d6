package storage

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/glusterctl"
	"saltern/internal/command"
	"saltern/supervisor/nodes"
	"saltern/test/fakegluster"
)

// poolMachine is a machine that reaches the members of a pool in memory.
type poolMachine struct {
	glusterctl.ThisMachine
	pool *fakegluster.Pool
}

func (m poolMachine) Dial(_ context.Context, address string) error { return m.pool.Dial(address) }

// clockOf is the system's clock at another time.
type clockOf struct {
	glusterctl.SystemClock
	now func() time.Time
}

func (c clockOf) Now() time.Time { return c.now() }

// noted remembers the gluster commands of a node.
type noted struct {
	command.Runner
	mu     sync.Mutex
	said   []string
	before func(args string) // each command; nil: nothing
}

func (n *noted) Run(ctx context.Context, argv []string) (command.Output, error) {
	args := slices.DeleteFunc(slices.Clone(argv[1:]), func(s string) bool { return strings.HasPrefix(s, "--") })
	n.mu.Lock()
	n.said = append(n.said, strings.Join(args, " "))
	n.mu.Unlock()
	if n.before != nil {
		n.before(strings.Join(args, " "))
	}
	return n.Runner.Run(ctx, argv)
}

// locking are the commands since the last call that take the lock of the pool.
func (n *noted) locking() (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.said {
		if strings.HasPrefix(s, "volume status") || strings.HasPrefix(s, "volume heal") {
			out = append(out, s)
		}
	}
	n.said = nil
	return out
}

// A node that leaves asks nothing that takes the lock of the pool: the others
// would wait for three minutes when it is let go at that moment.
func TestLeavingNodeTakesNoLock(t *testing.T) {
	pool := fakegluster.New(4)
	do := func(args ...string) {
		t.Helper()
		if out, err := command.Do(t.Context(), pool.Runner("node1"), append([]string{"gluster"}, args...)...); err != nil || !strings.Contains(string(out), "<opRet>0</opRet>") {
			t.Fatalf("%v: %s %v", args, out, err)
		}
	}

	for _, n := range []string{"node2", "node3", "node4"} {
		do("peer", "probe", n)
	}

	do("volume", "create", "cluster", "replica", "3", "node1:/b/1", "node2:/b/1", "node3:/b/1")
	do("volume", "start", "cluster")
	table := func(state nodes.State) nodes.Table {
		var out nodes.Table
		for _, n := range []string{"1", "2", "3", "4"} {
			out.Nodes = append(out.Nodes,
				nodes.Node{
					Name:    "node" + n,
					Address: "10.0.0." + n,
					State:   nodes.Member,
					Storage: "data",
					Brick:   "/b/1",
				})
		}

		out.Nodes[2].State = state
		return out
	}

	now := time.Unix(1e9, 0)
	run := &noted{Runner: pool.Runner("node3")}
	fresh := func(state nodes.State) *Manager {
		m := New(Config{
			Self:   "node3",
			Volume: "cluster",
			Mount:  "/srv/cluster",
			Dir:    t.TempDir(),
			Helper: []string{"/bin/false"},
			Now:    func() time.Time { return now },
		})

		m.ctl = glusterctl.New(glusterctl.Config{
			Runner:  run,
			Clock:   clockOf{now: m.cfg.Now},
			Machine: poolMachine{pool: pool},
		})

		m.SetTable(table(state))
		return m
	}

	m := fresh(nodes.Member)
	m.observe(t.Context())
	if q := m.obs.Quorum(); len(run.locking()) < 2 || !q.Known || q.Up != 3 {
		t.Fatalf("a member does not look at the bricks: %+v", q)
	}

	m.SetTable(table(nodes.Leaving))
	for range 3 {
		now = now.Add(time.Hour)
		m.observe(t.Context())
		if cmds := run.locking(); len(cmds) > 0 {
			t.Errorf("one that leaves runs %q", cmds)
		}
	}

	if q := m.obs.Quorum(); !m.obs.At.Equal(now) || !q.Known || q.Up != 3 {
		t.Errorf("it forgets what it knew: %+v", q)
	}

	do("volume", "replace-brick", "cluster", "node3:/b/1", "node4:/b/1", "commit", "force")
	m.observe(t.Context())
	if b := m.obs.Volume.Bricks[2].Name; b != "node4:/b/1" || len(run.locking()) > 0 {
		t.Errorf("another copy: %s, %q", b, run.said)
	}

	for _, p := range m.State().Problems {
		if strings.Contains(p.Subject, "node4:") {
			t.Errorf("of a brick that it cannot know it says %+v", p)
		}
	}

	m = fresh(nodes.Leaving)
	m.observe(t.Context())
	if m.obs == nil || m.obs.Volume == nil || len(run.locking()) > 0 {
		t.Errorf("the first look of one that leaves: %+v %q", m.obs, run.said)
	}

	// It hears of it in the middle of a look.
	m = fresh(nodes.Member)
	run.before = func(args string) {
		if strings.HasPrefix(args, "volume status") {
			m.SetTable(table(nodes.Leaving))
		}
	}

	m.observe(t.Context())
	if cmds := run.locking(); len(cmds) != 1 {
		t.Errorf("it goes on with %q", cmds)
	}
}
