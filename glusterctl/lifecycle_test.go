package glusterctl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cli"
	"saltern/glusterctl/layout"
	"saltern/glusterctl/mount"
	"saltern/internal/command"
	"saltern/test/fakegluster"
)

const point = "/srv/cluster"

// rig is a controller on one machine of a pool in memory, with a clock of its
// own.
type rig struct {
	*glusterctl.Controller
	glusterctl.ThisMachine
	pool *fakegluster.Pool
	node string
	now  time.Time
	log  []string     // what Apply said
	ran  atomic.Int64 // commands
	dead int          // the process that does not run; 0: none
}

// Dial implements [glusterctl.Machine].
func (r *rig) Dial(_ context.Context, address string) error { return r.pool.Dial(address) }

// Alive implements [glusterctl.Machine].
func (r *rig) Alive(p cli.Process) bool { return p.PID != r.dead }

// Now implements [glusterctl.Clock].
func (r *rig) Now() time.Time { return r.now }

// Sleep implements [glusterctl.Clock].
func (r *rig) Sleep(ctx context.Context, d time.Duration) error {
	r.now = r.now.Add(d)
	return ctx.Err()
}

// Jitter implements [glusterctl.Clock].
func (r *rig) Jitter() float64 { return 0.5 }

// counted counts the commands of a rig.
type counted struct {
	command.Runner
	n *atomic.Int64
}

func (c counted) Run(ctx context.Context, argv []string) (command.Output, error) {
	c.n.Add(1)
	return c.Runner.Run(ctx, argv)
}

func newRig(pool *fakegluster.Pool, node string) *rig {
	r := &rig{pool: pool, node: node, now: time.Unix(1e9, 0)}
	run := pool.Runner(node)
	m := &mount.Mounter{
		Runner:  run,
		Volume:  "cluster",
		Point:   point,
		Server:  node,
		Prepare: func(string) error { return nil },
		Table: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(pool.MountInfo(node, point))), nil
		},
	}

	r.Controller = glusterctl.New(glusterctl.Config{
		Runner:   counted{run, &r.ran},
		Machine:  r,
		Clock:    r,
		Mounter:  m,
		Prober:   &mount.Prober{Mounter: m, Command: []string{"probe"}, Runner: run},
		Tree:     func(nodes []string) layout.Tree { return layout.Cluster(0, 0, nodes...) },
		Helper:   []string{"helper"},
		RetryFor: 30 * time.Second,
		HealFor:  30 * time.Second,
	})

	return r
}

// want describes members by short words: "1" is a data member node1, "3a" an
// arbiter, "4c" a client, "1/2" a data member with its second brick directory.
func want(self string, members ...string) glusterctl.Desired {
	d := glusterctl.Desired{Volume: "cluster", Self: self, Timers: glusterctl.DefaultTimers(), Mount: point, Layout: 1}
	for _, w := range members {
		n, dir, ok := strings.Cut(w, "/")
		if !ok {
			dir = "1"
		}

		m := glusterctl.Member{Role: glusterctl.Data}
		if s, ok := strings.CutSuffix(n, "a"); ok {
			n, m.Role = s, glusterctl.Arbiter
		} else if s, ok := strings.CutSuffix(n, "c"); ok {
			n, m.Role = s, glusterctl.Client
		}

		m.Name, m.Address = "node"+n, "10.0.0."+n
		m.Brick = "/data/brick/cluster-" + dir
		d.Members = append(d.Members, m)
	}

	return d
}

// reach brings the pool to d, and fails the test when that does not work.
func (r *rig) reach(t *testing.T, d glusterctl.Desired) glusterctl.Plan {
	t.Helper()
	plan, err := r.try(t, d)
	if err != nil {
		var b strings.Builder
		_ = plan.Text(&b)
		t.Fatalf("apply: %v\nplan:\n%s\ndone:\n%s", err, b.String(), strings.Join(r.log, "\n"))
	}

	if again := r.plan(t, d); !again.Done() {
		t.Fatalf("after Apply there is more to do: %+v %+v", again.Steps, again.Refused)
	}
	if len(r.pool.Lost) > 0 {
		t.Fatalf("lost: %v", r.pool.Lost)
	}

	return plan
}

func (r *rig) plan(t *testing.T, d glusterctl.Desired) glusterctl.Plan {
	t.Helper()
	obs, err := r.Observe(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return r.Plan(obs, d)
}

func (r *rig) try(t *testing.T, d glusterctl.Desired) (glusterctl.Plan, error) {
	t.Helper()
	plan := r.plan(t, d)
	return plan, r.Apply(t.Context(), plan, func(e glusterctl.Event) {
		r.log = append(r.log, e.State+" "+e.Step.ID+" "+e.Text)
	})
}

func kinds(p glusterctl.Plan) string {
	var out []string
	for _, s := range p.Steps {
		if s.Kind != glusterctl.SetOption {
			out = append(out, string(s.Kind))
		}
	}
	return strings.Join(out, " ")
}

func codes(fs []glusterctl.Finding) string {
	var out []string
	for _, f := range fs {
		out = append(out, strings.TrimPrefix(f.Code, "storage."))
	}
	return strings.Join(out, " ")
}

func (r *rig) write(t *testing.T, n int) {
	t.Helper()
	for range n {
		if !r.pool.Write(r.node) {
			t.Fatal("a write was refused")
		}
	}
}

func form(t *testing.T, n int) *rig {
	t.Helper()
	pool := fakegluster.New(6)
	pool.JoinDelay = 3
	r := newRig(pool, "node1")
	d := want("node1", "1")
	d.Form = true
	r.reach(t, d)
	r.write(t, 5)
	members := []string{"1"}
	for i := 2; i <= n; i++ {
		members = append(members, fmt.Sprint(i))
		r.reach(t, want("node1", members...))
		r.write(t, 5)
	}

	return r
}

func wantBricks(t *testing.T, r *rig, want ...string) {
	t.Helper()
	var full []string
	for _, w := range want {
		down, w := w[0] == '-', strings.TrimPrefix(w, "-")
		n, dir, ok := strings.Cut(w, "/")
		if !ok {
			dir = "1"
		}

		arb := ""
		if s, ok := strings.CutSuffix(n, "a"); ok {
			n, arb = s, "(arbiter)"
		}

		s := "node" + n + ":/data/brick/cluster-" + dir + arb
		if down {
			s = "-" + s
		}

		full = append(full, s)
	}

	if got := r.pool.Bricks(r.node); !slices.Equal(got, full) {
		t.Fatalf("bricks %v, want %v\n%s", got, full, strings.Join(r.log, "\n"))
	}
}

func TestFormAlone(t *testing.T) {
	r := newRig(fakegluster.New(1), "node1")
	d := want("node1", "1")
	if p := r.plan(t, d); codes(p.Refused) != "no_volume" || len(p.Steps) != 0 {
		t.Fatalf("without Form: %+v", p)
	}

	d.Form = true
	p := r.reach(t, d)
	if got := kinds(p); got != "create start-volume mount make-layout" {
		t.Errorf("plan: %s", got)
	}

	wantBricks(t, r, "1")
	for k, v := range map[string]string{
		"network.ping-timeout":   "5",
		"auth.allow":             "10.0.0.1",
		"cluster.quorum-type":    "auto",
		"server.keepalive-count": "3",
	} {
		if got := r.pool.Option("node1", k); got != v {
			t.Errorf("%s is %q, want %q", k, got, v)
		}
	}
}

func TestGrow(t *testing.T) {
	r := form(t, 1)
	p := r.reach(t, want("node1", "1", "2"))
	wantBricks(t, r, "1")
	if codes(p.Warnings) != "standby" {
		t.Errorf("two nodes: warnings %q", codes(p.Warnings))
	}

	p = r.reach(t, want("node1", "1", "2", "3"))
	wantBricks(t, r, "1", "2", "3")
	if got := kinds(p); got != "probe wait-peers make-layout record add-brick wait-heal record add-brick wait-heal record" {
		t.Errorf("plan: %s", got)
	}

	if got := r.pool.Option("node1", "cluster.server-quorum-type"); got != "server" {
		t.Errorf("server quorum %q", got)
	}

	if got := r.pool.Option("node1", "cluster.granular-entry-heal"); got != "enable" {
		t.Errorf("granular entry heal %q", got)
	}

	if got := r.pool.Option("node1", "auth.allow"); got != "10.0.0.1,10.0.0.2,10.0.0.3" {
		t.Errorf("auth.allow %q", got)
	}

	r.reach(t, want("node1", "1", "2", "3", "4"))
	wantBricks(t, r, "1", "2", "3")
	if got := r.pool.Peers("node1"); !slices.Equal(got, []string{"node2", "node3", "node4"}) {
		t.Errorf("peers %v", got)
	}
}

// A file that was replaced while a copy was added has another GFID on it:
// healing ends only when the copy that was complete before is said to be right.
func TestGrowWhileAFileIsReplaced(t *testing.T) {
	r := form(t, 1)
	r.pool.Write("node1")
	r.pool.Stuck = map[int]bool{1: true}
	r.reach(t, want("node1", "1", "2", "3"))
	wantBricks(t, r, "1", "2", "3")
	if want := []string{"node1:/data/brick/cluster-1 /f1"}; !slices.Equal(r.pool.Settled, want) {
		t.Errorf("settled %q, want %q", r.pool.Settled, want)
	}
}

// A file that was replaced when its folder had been healed is on no list: only
// a look at its name finds it.
func TestGrowWhileAFileIsReplacedUnnoticed(t *testing.T) {
	r := form(t, 1)
	r.pool.Torn = []string{"/nodes/table", "/pki/master.pub"}
	r.reach(t, want("node1", "1", "2", "3"))
	wantBricks(t, r, "1", "2", "3")

	if want := []string{"node1:/data/brick/cluster-1 /nodes/table",
		"node1:/data/brick/cluster-1 /pki/master.pub"}; !slices.Equal(r.pool.Settled, want) {
		t.Errorf("settled %q, want %q", r.pool.Settled, want)
	}

	// Where all copies are recorded as complete nothing says which is right.
	r.pool.Torn = []string{"/pki/master.pub"}
	r.reach(t, want("node1", "1", "2"))
	if len(r.pool.Torn) != 1 {
		t.Error("settled although every copy was complete")
	}
}

func TestGrowToTwoCopiesWhenAsked(t *testing.T) {
	r := form(t, 1)
	d := want("node1", "1", "2")
	d.TwoCopies = true
	p := r.reach(t, d)
	wantBricks(t, r, "1", "2")
	if codes(p.Warnings) != "two_nodes" {
		t.Errorf("warnings %q", codes(p.Warnings))
	}
	if got := r.pool.Option("node1", "cluster.server-quorum-type"); got != "" {
		t.Errorf("server quorum in a pool of two: %q", got)
	}
}

func TestArbiter(t *testing.T) {
	r := form(t, 1)
	r.reach(t, want("node1", "1", "2", "3a"))
	wantBricks(t, r, "1", "2", "3a")
	r.write(t, 3)
	// A third full copy replaces the arbiter.
	p := r.reach(t, want("node1", "1", "2", "3a", "4"))
	wantBricks(t, r, "1", "2", "4")
	if got := kinds(p); !strings.Contains(got, "remove-brick record add-brick wait-heal record") {
		t.Errorf("plan: %s", got)
	}
}

// TestArbiterOutlivesACopy: whichever of the two copies is lost, its node can be
// let go and another one takes its place; a copy whose node leaves can go as well.
// Nothing that was written is lost, and nowhere is there a volume of two copies
// without the first.
func TestArbiterOutlivesACopy(t *testing.T) {
	for _, gone := range []string{"1", "2"} {
		for _, dead := range []bool{true, false} {
			r := form(t, 1)
			r.reach(t, want("node1", "1", "2", "3a"))
			r.write(t, 3)
			stays := map[string]string{"1": "2", "2": "1"}[gone]

			if dead {
				r.pool.Kill("node"+gone, false)
			}

			s := newRig(r.pool, "node"+stays)
			s.write(t, 3)
			d := want("node"+stays, stays, "3a")
			d.Leaving = []string{"node" + gone}
			p := s.reach(t, d)
			wantBricks(t, s, stays)

			if got := strings.Replace(kinds(p), "mount ", "", 1); got != "remove-brick detach" {
				t.Errorf("node%s, dead: %v: plan: %s", gone, dead, got)
			}

			s.write(t, 3)
			s.reach(t, want("node"+stays, stays, "3a/2", "4"))
			wantBricks(t, s, stays, "4", "3a/2")
		}
	}
}

// TestArbiterLeaves: two copies stay.
func TestArbiterLeaves(t *testing.T) {
	r := form(t, 1)
	r.reach(t, want("node1", "1", "2", "3a"))
	d := want("node1", "1", "2")
	d.Leaving = []string{"node3"}
	p := r.reach(t, d)
	wantBricks(t, r, "1", "2")
	if codes(p.Warnings) != "two_nodes" {
		t.Errorf("warnings %q", codes(p.Warnings))
	}
}

func TestFormThreeAtOnce(t *testing.T) {
	r := newRig(fakegluster.New(3), "node1")
	d := want("node1", "1", "2", "3")
	d.Form = true
	p := r.reach(t, d)
	wantBricks(t, r, "1", "2", "3")
	if got := kinds(p); got != "probe probe wait-peers create start-volume record mount make-layout" {
		t.Errorf("plan: %s", got)
	}
}

func TestReplaceDeadNode(t *testing.T) {
	r := form(t, 3)
	r.pool.Kill("node3", false)
	r.write(t, 10)

	// Away, not leaving: its brick stays.
	p := r.plan(t, want("node1", "1", "2", "3", "4"))
	if got := kinds(p); got != "probe wait-peers make-layout" &&
		!strings.HasPrefix(got, "probe wait-peers") || strings.Contains(got, "brick") {
		t.Errorf("plan while node3 is away: %s", got)
	}

	d := want("node1", "1", "2", "4")
	d.Leaving = []string{"node3"}
	p = r.reach(t, d)
	wantBricks(t, r, "1", "2", "4")

	if got := kinds(p); got != "probe wait-peers make-layout replace-brick wait-heal record detach" {
		t.Errorf("plan: %s", got)
	}

	if got := r.pool.Peers("node1"); !slices.Equal(got, []string{"node2", "node4"}) {
		t.Errorf("peers %v", got)
	}
}

func TestLostDisk(t *testing.T) {
	r := form(t, 3)
	r.pool.LoseDisk("node2")
	r.write(t, 10)
	r.log = nil
	if _, err := r.try(t, want("node1", "1", "2", "3")); err == nil ||
		!strings.Contains(err.Error(), "fresh brick directory") {
		t.Fatalf("a brick that does not start: %v", err)
	}
	p := r.reach(t, want("node1", "1", "2/2", "3"))
	wantBricks(t, r, "1", "2/2", "3")
	if got := kinds(p); got != "replace-brick wait-heal record" {
		t.Errorf("plan: %s", got)
	}
}

func TestRemoveNode(t *testing.T) {
	for _, dead := range []bool{false, true} {
		t.Run(fmt.Sprintf("dead=%v", dead), func(t *testing.T) {
			r := form(t, 3)
			if dead {
				r.pool.Kill("node3", false)
				r.write(t, 4)
			}

			d := want("node1", "1", "2")
			d.Leaving = []string{"node3"}
			r.reach(t, d)
			wantBricks(t, r, "1", "2")

			if got := r.pool.Peers("node1"); !slices.Equal(got, []string{"node2"}) {
				t.Errorf("peers %v", got)
			}

			if got := r.pool.Option("node1", "cluster.server-quorum-type"); got != "none" {
				t.Errorf("server quorum %q", got)
			}

			d = want("node1", "1")
			d.Leaving = []string{"node2"}
			r.reach(t, d)
			wantBricks(t, r, "1")
		})
	}
}

func TestUnknownPeerIsLeftAlone(t *testing.T) {
	r := form(t, 3)
	p := r.reach(t, want("node1", "1", "2", "3"))
	p = r.plan(t, want("node1", "1", "2"))
	if !strings.Contains(codes(p.Warnings), "unknown_peer") || strings.Contains(kinds(p), "detach") {
		t.Errorf("steps %q, warnings %q", kinds(p), codes(p.Warnings))
	}
}

// What must not be done, and why.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setup func(t *testing.T) (*rig, glusterctl.Desired)
		code  string
		text  string
	}{
		{"the only copy", func(t *testing.T) (*rig, glusterctl.Desired) {
			r := form(t, 1)
			r.reach(t, want("node1", "1", "2c"))
			d := want("node1", "1c", "2c")
			return r, d
		}, "last_copy", "only copy"},
		{"two of three down", func(t *testing.T) (*rig, glusterctl.Desired) {
			r := form(t, 3)
			r.pool.Kill("node2", false)
			r.pool.Kill("node3", false)
			d := want("node1", "1", "2")
			d.Leaving = []string{"node3"}
			return r, d
		}, "no_quorum", "only 1 of 3"},
		{"two of three copies down", func(t *testing.T) (*rig, glusterctl.Desired) {
			r := form(t, 5)
			r.pool.Kill("node2", false)
			r.pool.Kill("node3", false)
			d := want("node1", "1", "2", "4", "5")
			d.Leaving = []string{"node3"}
			return r, d
		}, "unsafe_removal", "does not run either"},
		{"the copies that stay are fresh", func(t *testing.T) (*rig, glusterctl.Desired) {
			r := form(t, 1)
			r.pool.HealSpeed = 0
			r.reach(t, want("node1", "1", "2c", "3c", "4c"))
			d := want("node1", "1", "2", "3c")
			d.TwoCopies = true

			if _, err := r.try(t, d); err == nil {
				t.Fatal("healing did not happen, and Apply says that it did")
			}

			wantBricks(t, r, "1", "2")
			r2 := newRig(r.pool, "node2")
			r.pool.Kill("node1", false)
			d = want("node2", "2", "3c", "4")
			d.Leaving = []string{"node1"}

			return r2, d
		}, "unsafe_removal", "never recorded"},
		{"first of two", func(t *testing.T) (*rig, glusterctl.Desired) {
			r := form(t, 1)
			d := want("node1", "1", "2")
			d.TwoCopies = true
			r.reach(t, d)
			r.pool.Kill("node1", false)
			d = want("node2", "2")
			d.Leaving = []string{"node1"}

			return newRig(r.pool, "node2"), d
		}, "unsafe_removal", "first brick of two"},
		{"arbiter blames the copy that stays", func(t *testing.T) (*rig, glusterctl.Desired) {
			r := form(t, 1)
			r.reach(t, want("node1", "1", "2", "3a"))
			r.pool.HealSpeed = 0
			r.pool.Kill("node2", false)
			r.write(t, 3) // on node1 and the arbiter only
			r.pool.Kill("node1", false)
			r.pool.Revive("node2")
			d := want("node2", "2", "3a", "4")
			d.Leaving = []string{"node1"}

			return newRig(r.pool, "node2"), d
		}, "unsafe_removal", "same pending entries"},
		{"foreign volume", func(t *testing.T) (*rig, glusterctl.Desired) {
			r := form(t, 1)
			d := want("node1", "1")
			d.TLS = true
			return r, d
		}, "tls_late", "cannot be set while"},
		{"invalid", func(t *testing.T) (*rig, glusterctl.Desired) {
			d := want("node1", "1", "2")
			d.Members[1].Name = "--remote-host=x"
			return form(t, 1), d
		}, "invalid", "member name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, d := tt.setup(t)
			before := strings.Join(r.pool.Bricks(r.node), " ")
			_, err := r.try(t, d)
			var refused *glusterctl.RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v", err)
			}

			if !strings.Contains(codes(refused.Findings), tt.code) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %s %q", err, tt.code, tt.text)
			}

			if after := strings.Join(r.pool.Bricks(r.node), " "); after != before {
				t.Errorf("bricks were %s, are %s", before, after)
			}

			if len(r.pool.Lost) > 0 {
				t.Errorf("lost %v", r.pool.Lost)
			}
		})
	}
}

func TestAcceptedLoss(t *testing.T) {
	r := form(t, 1)
	d := want("node1", "1", "2")
	d.TwoCopies = true
	r.reach(t, d)
	r.pool.Kill("node1", false)
	r = newRig(r.pool, "node2")
	d = want("node2", "2")
	d.Leaving = []string{"node1"}
	d.AcceptLoss = []string{"node1:/data/brick/cluster-1"}
	p := r.reach(t, d)
	wantBricks(t, r, "2")

	if !strings.Contains(codes(p.Warnings), "accepted_loss") {
		t.Errorf("warnings %q", codes(p.Warnings))
	}
}

func TestDestructiveStepNeedsApproval(t *testing.T) {
	r := form(t, 3)
	d := want("node1", "1", "2")
	d.Leaving = []string{"node3"}
	plan := r.plan(t, d)
	plan.Steps = plan.Steps[:0]
	err := r.Apply(t.Context(), plan, nil)
	if !errors.Is(err, glusterctl.ErrNotApproved) {
		t.Fatalf("got %v", err)
	}
	wantBricks(t, r, "1", "2", "3")
}

func TestVanishedPeerIsWaitedFor(t *testing.T) {
	r := form(t, 3)
	r.pool.Kill("node3", true)
	d := want("node1", "1", "2")
	d.Leaving = []string{"node3"}
	plan := r.plan(t, d)
	if got := kinds(plan); got != "wait-pool" {
		t.Fatalf("plan: %s", got)
	}

	r.pool.Notice()

	// What was not in the plan is not done.
	if err := r.Apply(t.Context(), plan, nil); !errors.Is(err, glusterctl.ErrNotApproved) {
		t.Fatalf("got %v", err)
	}

	r.reach(t, d)
	wantBricks(t, r, "1", "2")
}
