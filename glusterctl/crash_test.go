package glusterctl_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cli"
	"saltern/internal/command"
	"saltern/test/fakegluster"
)

// life is the wishes of a cluster's life, one after the other, with what
// happens before each.
func life(p *fakegluster.Pool) []struct {
	before func()
	d      glusterctl.Desired
	bricks []string
} {
	write := func() {
		for range 3 {
			p.Write("node1")
		}
	}

	leave := func(d glusterctl.Desired, names ...string) glusterctl.Desired {
		d.Leaving = names
		return d
	}

	formed := want("node1", "1")
	formed.Form = true
	return []struct {
		before func()
		d      glusterctl.Desired
		bricks []string
	}{
		{nil, formed, []string{"1"}},
		{write, want("node1", "1", "2", "3a"), []string{"1", "2", "3a"}},
		{write, want("node1", "1", "2", "3a", "4"), []string{"1", "2", "4"}},
		{func() { write(); p.Kill("node2", false); write() }, leave(want("node1", "1", "3/2", "4"), "node2"),
			[]string{"1", "3/2", "4"}},
		{func() { write(); p.LoseDisk("node4"); write() }, want("node1", "1", "3/2", "4/2"),
			[]string{"1", "3/2", "4/2"}},
		{func() { write(); p.Kill("node3", false); write() }, leave(want("node1", "1", "4/2"), "node3"),
			[]string{"1", "4/2"}},
		{write, leave(want("node1", "1"), "node4"), []string{"1"}},
	}
}

// The whole life with the process killed at every single command, before and
// after the command had its effect. The next process starts with nothing but
// what it observes.
func TestKilledAtEveryCommand(t *testing.T) {
	total := 0
	for kill := 0; ; kill++ {
		pool := fakegluster.New(4)
		pool.JoinDelay = 2
		n, died := 0, false
		for _, stage := range life(pool) {
			if stage.before != nil {
				stage.before()
			}

			r := newRig(pool, "node1")
			plan := r.plan(t, stage.d)
			ctx, cancel := context.WithCancel(t.Context())
			pool.Hook = func(string, []string, bool) error {
				n++
				if n == kill {
					died = true
					cancel()
					return context.Canceled
				}
				return nil
			}

			err := r.Apply(ctx, plan, nil)
			cancel()
			if died && err != nil {
				r = newRig(pool, "node1")
				err = r.Apply(t.Context(), r.plan(t, stage.d), nil)
			}

			pool.Hook = nil
			if err != nil {
				t.Fatalf("killed at command %d: %v\n%s", kill, err, strings.Join(pool.Calls, "\n"))
			}

			wantBricks(t, r, stage.bricks...)
			if len(pool.Lost) > 0 {
				t.Fatalf("killed at command %d: lost %v\n%s", kill, pool.Lost, strings.Join(pool.Calls, "\n"))
			}

			if p := r.plan(t, stage.d); !p.Done() {
				t.Fatalf("killed at command %d: not done: %+v", kill, p)
			}
		}

		if !died && kill > 0 {
			total = kill
			break
		}
	}

	if total < 50 {
		t.Errorf("only %d commands", total)
	}

	t.Logf("killed at each of %d points", total-1)
}

// late makes a change of another node end just before the first add-brick of
// this one, so that the directory carries the mark of the volume.
type late struct {
	command.Runner
	done bool
}

func (l *late) Run(ctx context.Context, argv []string) (command.Output, error) {
	out, err := l.Runner.Run(ctx, argv)
	if err != nil || l.done || !slices.Contains(argv, "add-brick") {
		return out, err
	}
	l.done = true
	return command.Output{
		Exit:   1,
		Stdout: []byte("<cliOutput><opRet>-1</opRet><opErrno>0</opErrno><opErrstr>Pre Validation failed. /data/brick/cluster-1 is already part of a volume</opErrstr></cliOutput>"),
	}, nil
}

// clearing is a machine that only notes which directories it is to clear.
type clearing struct {
	*rig
	cleared []string
}

func (m *clearing) ClearBrick(_ context.Context, dir string) error {
	m.cleared = append(m.cleared, dir)
	return nil
}

// A directory that another node has made a copy in the meantime is not cleared.
func TestMarkOfAnothersChangeStays(t *testing.T) {
	r := form(t, 2)
	other := &late{Runner: r.pool.Runner("node2")}
	machine := &clearing{rig: r}
	c := glusterctl.New(glusterctl.Config{Runner: other, Machine: machine, Clock: r})

	d := want("node2", "1", "2")
	d.TwoCopies, d.Mount = true, ""
	obs, err := c.Observe(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}

	if err := c.Apply(t.Context(), c.Plan(obs, d), nil); err != nil {
		t.Fatal(err)
	}

	wantBricks(t, r, "1", "2")
	if !other.done || len(machine.cleared) > 0 {
		t.Errorf("refused once: %v, cleared %q", other.done, machine.cleared)
	}
}

// Refusals that pass: a busy lock, a peer that restarts, an answer that comes
// too late although the command had its effect.
func TestTroubleThatPasses(t *testing.T) {
	for name, trouble := range map[string]func(try int, applied bool) error{
		"busy": func(try int, applied bool) error {
			if try%3 != 0 && !applied {
				return &cli.Error{
					Ret:   -1,
					Errno: 30802,
					Text:  "Another transaction is in progress for cluster. Please try again after some time.",
					Kind:  cli.Busy,
				}
			}

			return nil
		},
		"late answer": func(try int, applied bool) error {
			if applied {
				return command.ErrTimeout
			}
			return nil
		},
		"no answer, then an answer": func(try int, applied bool) error {
			if try%2 == 1 && !applied {
				return command.ErrTimeout
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := fakegluster.New(4)
			try := 0
			pool.Hook = func(_ string, _ []string, applied bool) error {
				if !applied {
					try++
				}
				return trouble(try, applied)
			}

			r := newRig(pool, "node1")
			d := want("node1", "1", "2", "3")
			d.Form = true
			r.reach(t, d)
			d = want("node1", "1", "2", "4")
			d.Leaving = []string{"node3"}
			r.reach(t, d)
			wantBricks(t, r, "1", "2", "4")
		})
	}
}

// A brick that was started takes its time to report to glusterd. Nobody gives
// up within seconds, and nobody starts it again and again.
func TestSlowBrick(t *testing.T) {
	pool := fakegluster.New(3)
	r := newRig(pool, "node1")
	pool.Clock = func() time.Time { return r.now }
	d := want("node1", "1", "2", "3")
	d.Form = true
	r.reach(t, d)
	pool.StartTime = 5 * time.Second
	pool.KillBrick("node2")
	pool.Calls = nil
	r.reach(t, d)
	starts := 0
	for _, call := range pool.Calls {
		if strings.Contains(call, "volume start") {
			starts++
		}
	}

	if starts > 3 {
		t.Errorf("started %d times: %q", starts, pool.Calls)
	}
}

// A self-heal daemon that does not start, or whose start glusterd refuses, is told of, and keeps no node from
// coming into the volume.
func TestSelfHealDaemonThatDoesNotStart(t *testing.T) {
	for name, answer := range map[string]error{
		"without a word": nil,
		"with an error":  errors.New("commit failed on node2"),
	} {
		t.Run(name, func(t *testing.T) {
			r := form(t, 2)
			r.pool.KillHealer("node2")
			r.pool.Node("node2").HealerBroken = true
			r.pool.Hook = func(_ string, args []string, applied bool) error {
				if applied || args[0] != "volume" || args[1] != "start" {
					return nil
				}
				return answer
			}

			_, err := r.try(t, want("node1", "1", "2", "3"))
			if err == nil || !strings.Contains(err.Error(), "the self-heal daemon of node2") {
				t.Errorf("told: %v", err)
			}

			wantBricks(t, r, "1", "2", "3")
		})
	}
}

// A self-heal daemon that has ended is started, as a brick is: of any node that is there, of
// several at once and beside a brick. That of a node that is off is left alone.
func TestSelfHealDaemonIsStarted(t *testing.T) {
	for name, test := range map[string]struct {
		healers []string
		brick   string // of this node
		off     string // this node
		starts  int
	}{
		"none":                 {starts: 0},
		"of the node itself":   {healers: []string{"node1"}, starts: 1},
		"of another":           {healers: []string{"node3"}, starts: 1},
		"of all":               {healers: []string{"node1", "node2", "node3"}, starts: 1},
		"with its brick":       {healers: []string{"node2"}, brick: "node2", starts: 1},
		"beside another brick": {healers: []string{"node2"}, brick: "node3", starts: 1},
		"of a node that is off": {
			healers: []string{"node2"},
			off:     "node2",
			starts:  0,
		},
		"beside a node that is off": {
			healers: []string{"node1"},
			off:     "node2",
			starts:  1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, d := form(t, 3), want("node1", "1", "2", "3")
			for _, n := range test.healers {
				r.pool.KillHealer(n)
			}

			if test.brick != "" {
				r.pool.KillBrick(test.brick)
			}

			if test.off != "" {
				r.pool.Kill(test.off, false)
			}

			r.pool.Calls = nil

			_, _ = r.try(t, d) // that a node is off may be said
			starts := 0
			for _, call := range r.pool.Calls {
				if strings.HasPrefix(call, "volume start") {
					starts++
				}
			}

			if starts != test.starts {
				t.Errorf("%d starts, not %d: %q", starts, test.starts, r.pool.Calls)
			}

			for _, step := range r.plan(t, d).Steps {
				if step.Kind == glusterctl.StartBricks {
					t.Errorf("still to be done: %+v", step)
				}
			}
		})
	}
}

func TestTroubleThatStays(t *testing.T) {
	pool := fakegluster.New(1)
	pool.Hook = func(_ string, args []string, _ bool) error {
		if args[1] == "start" {
			return &cli.Error{
				Command: []string{"gluster", "volume", "start"},
				Ret:     -1,
				Errno:   30802,
				Text:    "Another transaction is in progress",
				Kind:    cli.Busy,
			}
		}

		return nil
	}

	r := newRig(pool, "node1")
	d := want("node1", "1")
	d.Form = true
	start := r.now
	_, err := r.try(t, d)
	var step *glusterctl.StepError
	if !errors.As(err, &step) || step.Step.Kind != glusterctl.StartVolume {
		t.Fatalf("got %v", err)
	}

	for _, part := range []string{"start volume cluster", "gluster volume start", "Another transaction",
		"next: another change"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not tell %q", err, part)
		}
	}

	if d := r.now.Sub(start); d < 30*time.Second || d > time.Minute {
		t.Errorf("given up after %v", d)
	}

	// A refusal that nobody expects is not repeated.
	n := 0
	pool.Hook = func(string, []string, bool) error {
		n++
		return &cli.Error{Ret: -1, Errno: 30800, Text: "something else", Kind: cli.Refused}
	}

	if _, err := r.try(t, d); err == nil || n != 1 {
		t.Errorf("%d tries, %v", n, err)
	}
}

// Random lives: nodes die, come back, lose disks and are replaced, healing is
// slow or does not happen. Whatever Apply does or refuses, no acknowledged write
// goes with a brick that it takes away.
func TestRandomLivesLoseNothing(t *testing.T) {
	lives := 250
	if n, err := strconv.Atoi(os.Getenv("GLUSTERCTL_LIVES")); err == nil {
		lives = n // more, by hand
	}

	done, stopped := 0, 0
	for seed := range lives {
		l := newRandomLife(t, int64(seed))
		for range 20 {
			l.event()
			ok, tried := l.step(t)
			switch {
			case tried && ok:
				done++
			case tried:
				stopped++
			}

			if len(l.pool.Lost) > 0 {
				t.Fatalf("seed %d: lost %v\n%s", seed, l.pool.Lost, strings.Join(l.log, "\n"))
			}
		}
	}

	t.Logf("%d plans carried out, %d stopped", done, stopped)
	if done < lives*5 || stopped < lives {
		t.Errorf("%d plans carried out, %d stopped: the test does not try enough", done, stopped)
	}
}

type randomLife struct {
	*rand.Rand
	pool    *fakegluster.Pool
	members []string
	dirs    map[string]int // number of a node's next fresh directory
	dead    map[string]bool
	log     []string
}

const randomNodes = 4

func newRandomLife(t *testing.T, seed int64) *randomLife {
	l := &randomLife{
		Rand:    rand.New(rand.NewSource(seed)),
		pool:    fakegluster.New(randomNodes),
		members: []string{"1"},
		dirs:    map[string]int{},
		dead:    map[string]bool{},
	}
	l.pool.HealSpeed = []int{0, 2, 1 << 30}[l.Intn(3)]
	d := want("node1", "1")
	d.Form = true
	newRig(l.pool, "node1").reach(t, d)
	return l
}

func (l *randomLife) note(format string, args ...any) {
	l.log = append(l.log, fmt.Sprintf(format, args...))
}

func (l *randomLife) event() {
	n := fmt.Sprint(1 + l.Intn(randomNodes))
	switch l.Intn(8) {
	case 0, 1:
		if len(l.dead) < 2 {
			l.note("node%s dies", n)
			l.pool.Kill("node"+n, false)
			l.dead[n] = true
		}
	case 2, 3:
		if l.dead[n] {
			l.note("node%s is back", n)
			l.pool.Revive("node" + n)
			delete(l.dead, n)
		}
	case 4:
		l.pool.HealSpeed = []int{0, 1, 1 << 30}[l.Intn(3)]
		l.note("healing %d", l.pool.HealSpeed)
	case 5:
		if len(l.dead) == 0 && l.Intn(3) == 0 {
			l.note("node%s loses its disk", n)
			l.pool.LoseDisk("node" + n)
			l.dirs[n]++
		}
	}

	for range l.Intn(4) {
		for i := 1; i <= randomNodes; i++ {
			if !l.dead[fmt.Sprint(i)] && l.pool.Write(fmt.Sprintf("node%d", i)) {
				break
			}
		}
	}
}

// step wishes for something else and lets a node that is there try it.
func (l *randomLife) step(t *testing.T) (ok, tried bool) {
	n := fmt.Sprint(1 + l.Intn(randomNodes))
	switch at := slices.IndexFunc(l.members, func(m string) bool { return strings.TrimSuffix(m, "a") == n }); {
	case at < 0 && l.Intn(6) == 0:
		l.members = append(l.members, n+"a")
	case at < 0:
		l.members = append(l.members, n)
	case len(l.members) > 1 && l.Intn(2) == 0:
		l.members = slices.Delete(l.members, at, at+1)
		defer func() { l.dirs[n]++ }() // what comes back gets a fresh directory
	}

	var words, leaving []string
	self := ""
	for _, m := range l.members {
		bare := strings.TrimSuffix(m, "a")
		words = append(words, fmt.Sprintf("%s/%d", m, 1+l.dirs[bare]))
		if !l.dead[bare] && (self == "" || l.Intn(2) == 0) {
			self = "node" + bare
		}
	}

	for i := 1; i <= randomNodes; i++ {
		if s := fmt.Sprint(i); !slices.Contains(l.members, s) && !slices.Contains(l.members, s+"a") {
			leaving = append(leaving, "node"+s)
		}
	}

	if self == "" {
		return false, false
	}

	d := want(self, words...)
	d.Leaving, d.TwoCopies = leaving, l.Intn(4) > 0
	r := newRig(l.pool, self)
	plan := r.plan(t, d)

	if l.Intn(4) == 0 {
		calls := 0
		l.pool.Hook = func(string, []string, bool) error {
			calls++
			if calls == 3 {
				return command.ErrTimeout
			}
			return nil
		}
	}

	before := len(l.pool.Calls)
	err := r.Apply(t.Context(), plan, nil)
	l.pool.Hook = nil
	l.note("%s wants %v without %v: %v\n    %s\n    bricks %v", self, words, leaving, err,
		strings.Join(l.pool.Calls[before:], "\n    "), l.pool.Bricks(self))

	return err == nil, true
}
