package lbproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/test/await"
)

// clusterConfig has both frontends and Salt's own checks.
func clusterConfig(masters ...*salt) Config {
	cfg := testConfig(Publish)
	cfg.Frontends = append(cfg.Frontends, Frontend{Name: "request", Mode: Request, Bind: []string{"127.0.0.1:0"}})
	cfg.Health.Check = CheckPing
	cfg.Rebalance = Rebalance{Delay: 50 * time.Millisecond, Rate: 1, Quiet: 20 * time.Millisecond}
	for i, m := range masters {
		cfg.Backends = append(cfg.Backends, m.backend(fmt.Sprint("m", i)))
	}
	return cfg
}

func held(p *Proxy, fe string) []int64 {
	var out []int64
	for _, b := range p.Status().Backends {
		for _, port := range b.Ports {
			if port.Frontend == fe {
				out = append(out, port.Sessions)
			}
		}
	}
	return out
}

func state(p *Proxy, backend, fe string) State {
	for _, b := range p.Status().Backends {
		for _, port := range b.Ports {
			if b.Name == backend && port.Frontend == fe {
				return port.State
			}
		}
	}
	return -1
}

// TestMasterDiesAndReturns is the story the proxy exists for: all minions are
// moved at once, and balanced again when the master is back, without a cut
// inside a frame.
func TestMasterDiesAndReturns(t *testing.T) {
	t.Parallel()
	a, b, c := newSalt(t), newSalt(t), newSalt(t)
	p, addr := start(t, clusterConfig(a, b, c))
	upPorts(t, p, 6)
	ms := herd(t, addr, 30)
	even := func() bool { // the most loaded has at most 1.15 of the mean
		n := held(p, "front")
		return max(n[0], n[1], n[2]) <= 11 && n[0]+n[1]+n[2] == 30
	}

	eventually(t, "30 minions on three masters", even)
	var before int64
	for _, m := range ms {
		before += m.cuts.Load()
	}

	pubAddr, reqAddr := b.pub.addr.String(), b.req.addr.String()
	b.pub.stop()
	b.req.stop()
	eventually(t, "all minions on two masters",
		func() bool { n := held(p, "front"); return n[1] == 0 && n[0]+n[2] == 30 })
	eventually(t, "down", func() bool { return state(p, "m1", "front") == Down && state(p, "m1", "request") == Down })

	// Publishes go on while it returns, in two pieces each, so that a cut at
	// any moment would be seen inside a frame.
	stop, casts := make(chan struct{}), sync.WaitGroup{}
	casts.Go(func() {
		msg := appendFrame(nil, 0, make([]byte, 3000))
		for {
			for _, m := range []*salt{a, c} {
				m.castPieces(msg[:10], msg[10:])
			}

			select {
			case <-stop:
				return
			case <-time.After(150 * time.Millisecond):
			}
		}
	})

	if err := errors.Join(b.pub.start(pubAddr), b.req.start(reqAddr)); err != nil {
		t.Fatal(err)
	}

	eventually(t, "balanced again", even)
	close(stop)
	casts.Wait()
	await.Holds(t, 200*time.Millisecond, "balanced", even)
	moved := p.Status().Moved
	if moved < 8 || moved > 15 {
		t.Errorf("%d sessions cut to balance 30", moved)
	}

	for i, m := range ms {
		if m.broken.Load() > 0 {
			t.Errorf("minion %d was cut inside a frame", i)
		}
	}
}

// TestStalledMaster: it accepts and says nothing. Its silent sessions are
// moved, new ones go elsewhere.
func TestStalledMaster(t *testing.T) {
	t.Parallel()
	a, b := newSalt(t), newSalt(t)
	cfg := clusterConfig(a, b)
	cfg.Rebalance.Off = true
	p, addr := start(t, cfg)
	upPorts(t, p, 4)
	herd(t, addr, 10)
	eventually(t, "minions on both", func() bool { n := held(p, "front"); return n[0] == 5 && n[1] == 5 })
	b.stalled.Store(true)
	eventually(t, "minions moved", func() bool { n := held(p, "front"); return n[0] == 10 && n[1] == 0 })

	// With every master stalled a connect still succeeds: that is no sign of
	// life, and nobody may be left waiting on it for long.
	a.stalled.Store(true)
	eventually(t, "all down", func() bool { return state(p, "m0", "front") == Down && state(p, "m1", "front") == Down })
	c := dial(t, addr)
	began := time.Now()
	if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after %v: %v", time.Since(began), err)
	}

	b.stalled.Store(false)
	eventually(t, "minions on the one that lives again", func() bool { return held(p, "front")[1] >= 10 })
}

// TestStalledAlone: where would its minions go? They stay until another master
// is there.
func TestStalledAlone(t *testing.T) {
	t.Parallel()
	a, b := newSalt(t), newSalt(t)
	b.stalled.Store(true)
	cfg := clusterConfig(a, b)
	cfg.Rebalance.Off = true
	p, addr := start(t, cfg)
	eventually(t, "one up, one down",
		func() bool { return state(p, "m0", "front") == Up && state(p, "m1", "front") == Down })
	ms := herd(t, addr, 10)
	eventually(t, "minions on one", func() bool { return held(p, "front")[0] == 10 })
	a.stalled.Store(true)
	eventually(t, "down", func() bool { return state(p, "m0", "front") == Down })
	await.Holds(t, time.Second, "nobody is cut when there is nowhere to go", func() bool { return !anyCut(ms) })
	b.stalled.Store(false)
	eventually(t, "minions moved", func() bool { n := held(p, "front"); return n[0] == 0 && n[1] == 10 })
}

// TestLateChecksKeepLiveSessions: checks time out, but publishes arrive: weak
// evidence must not cut what works.
func TestLateChecksKeepLiveSessions(t *testing.T) {
	t.Parallel()
	a, b := newSalt(t), newSalt(t)
	cfg := clusterConfig(a, b)
	cfg.Rebalance.Off = true
	p, addr := start(t, cfg)
	upPorts(t, p, 4)
	ms := herd(t, addr, 10)
	eventually(t, "minions on both", func() bool { n := held(p, "front"); return n[0] == 5 && n[1] == 5 })
	stop, casts := make(chan struct{}), sync.WaitGroup{}
	casts.Go(func() {
		for {
			b.cast(appendFrame(nil, 0, []byte("job")))
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})

	eventually(t, "publishes arrive", func() bool {
		n := 0
		for _, m := range ms {
			n += int(min(1, m.msgs.Load()))
		}
		return n == 5
	})

	b.stalled.Store(true)
	eventually(t, "down", func() bool { return state(p, "m1", "front") == Down })
	await.Holds(t, time.Second, "held while publishes arrive",
		func() bool { return held(p, "front")[1] == 5 && !anyCut(ms) })
	close(stop)
	casts.Wait()
}

func anyCut(ms []*minion) bool {
	return slices.ContainsFunc(ms, func(m *minion) bool { return m.cuts.Load() > 0 })
}

// TestJoiningMaster gets nobody until it is ready.
func TestJoiningMaster(t *testing.T) {
	a, b := newSalt(t), newSalt(t)
	joining := notReady
	b.answer.Store(&joining)
	p, addr := start(t, clusterConfig(a, b))
	eventually(t, "joining",
		func() bool { return state(p, "m1", "request") == Joining && state(p, "m0", "request") == Up })
	upPorts(t, p, 3)
	herd(t, addr, 10)
	eventually(t, "all on the ready one", func() bool { return held(p, "front")[0] == 10 })
	ready := pong
	b.answer.Store(&ready)
	eventually(t, "shared", func() bool { n := held(p, "front"); return n[0] <= 6 && n[0]+n[1] == 10 })
}

// TestUnwellMaster: a master that can keep no jobs loses its minions to one that is well, whole
// frames and all, and has its share again afterwards. While all are unwell they share the minions.
func TestUnwellMaster(t *testing.T) {
	t.Parallel()
	a, b := newSalt(t), newSalt(t)
	p, addr := start(t, clusterConfig(a, b))
	upPorts(t, p, 4)
	ms := herd(t, addr, 10)
	spread := func() bool { n := held(p, "front"); return n[0] >= 4 && n[1] >= 4 && n[0]+n[1] == 10 }
	eventually(t, "minions on both", spread)

	well, ill := pong, unwell
	b.answer.Store(&ill)
	eventually(t, "all on the one that is well", func() bool { n := held(p, "front"); return n[0] == 10 && n[1] == 0 })
	if st := state(p, "m1", "request"); st != Unwell {
		t.Errorf("m1 is %v", st)
	}

	why := ""
	for _, port := range p.Status().Backends[1].Ports {
		why += port.LastError
	}

	if !strings.Contains(why, "this master cannot keep jobs: input/output error") {
		t.Errorf("the status says %q", why)
	}

	a.answer.Store(&ill)
	eventually(t, "both unwell", func() bool { return state(p, "m0", "request") == Unwell })
	more := herd(t, addr, 10)
	eventually(t, "new minions on both", func() bool { n := held(p, "front"); return n[1] >= 4 && n[0]+n[1] == 20 })

	if n := held(p, "front"); n[0] < 10 {
		t.Errorf("minions have left one unwell master for another: %v", n)
	}

	a.answer.Store(&well)
	b.answer.Store(&well)
	eventually(t, "shared", func() bool { n := held(p, "front"); return min(n[0], n[1]) >= 8 && n[0]+n[1] == 20 })
	for i, m := range append(ms, more...) {
		if m.broken.Load() > 0 {
			t.Errorf("minion %d was cut inside a frame", i)
		}
	}
}

// TestDrain moves everybody and loses no request.
func TestDrain(t *testing.T) {
	t.Parallel()
	a, b := newSalt(t), newSalt(t)
	p, addr := start(t, clusterConfig(a, b))
	upPorts(t, p, 4)
	ms := herd(t, addr, 10)
	eventually(t, "minions on both", func() bool { n := held(p, "front"); return n[0] == 5 && n[1] == 5 })

	reqAddr := p.Addrs("request")[0].String()
	var asking sync.WaitGroup
	for range 4 {
		c := dial(t, reqAddr)
		r, err := hello(c, "REQ")
		if err != nil {
			t.Fatal(err)
		}

		asking.Go(func() {
			c.Write(appendFrame(appendFrame(nil, flagMore, nil), 0, []byte("slow")))
			if got, err := readReply(c, r); err != nil || string(got) != "slow" {
				t.Errorf("request lost by drain: %q, %v", got, err)
			}

			// Between requests it is moved, as a minion's idle connection would be.
			if _, err := r.ReadByte(); err == nil {
				t.Error("bytes after the answer")
			}

			c.Close()
		})
	}

	eventually(t, "requests under way", func() bool { return a.slow.Load()+b.slow.Load() == 4 })
	if err := errors.Join(p.Drain("m0"), p.Drain("m1")); err != nil {
		t.Fatal(err)
	}

	asking.Wait()
	if err := p.Undrain("m1"); err != nil {
		t.Fatal(err)
	}

	eventually(t, "all on m1", func() bool { n := held(p, "front"); return n[0] == 0 && n[1] == 10 })
	for i, m := range ms {
		if m.broken.Load() > 0 {
			t.Errorf("minion %d was cut inside a frame", i)
		}
	}

	if err := p.RemoveBackend("m0", false); err != nil {
		t.Fatal(err)
	}

	eventually(t, "removed", func() bool { return len(p.Status().Backends) == 1 })
	if err := p.AddBackend(a.backend("m2")); err != nil {
		t.Fatal(err)
	}

	eventually(t, "m2 has its share", func() bool { n := held(p, "front"); return len(n) == 2 && n[1] >= 4 })
}

// TestFlap: a backend that dies and returns all the time costs no session on
// the others and leaves nothing behind.
func TestFlap(t *testing.T) {
	t.Parallel()
	steady, flappy := newFake(t, "127.0.0.1:0", echo), newFake(t, "127.0.0.1:0", echo)
	cfg := testConfig(Request, steady, flappy)
	p, addr := start(t, cfg)
	upPorts(t, p, 2)
	keep := dial(t, addr)
	ask(t, keep, "x")

	for p.Status().Backends[0].Ports[0].Sessions == 0 {
		keep = dial(t, addr)
		ask(t, keep, "x")
	}

	before := fds(t)
	at := flappy.addr.String()
	failed := 0
	for range 15 {
		flappy.stop()
		for range 10 {
			c := dial(t, addr)
			io.WriteString(c, "x")
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				failed++
			}
			c.Close()
		}

		if err := flappy.start(at); err != nil {
			t.Fatal(err)
		}

		time.Sleep(30 * time.Millisecond)
	}

	if failed > 0 {
		t.Errorf("%d of 150 requests failed while another master was well", failed)
	}

	upPorts(t, p, 2)
	eventually(t, "sessions gone", func() bool { return p.Status().Sessions <= 2 })
	eventually(t, "descriptors back", func() bool { return fds(t) <= before+4 })
}

// TestNoneUp: with nothing up, the last known good master is tried.
func TestNoneUp(t *testing.T) {
	f := newFake(t, "127.0.0.1:0", echo)
	cfg := testConfig(Request, f)
	cfg.Health.Check = CheckReady // an echo fails it
	p, addr := start(t, cfg)
	eventually(t, "down", func() bool { return state(p, "b0", "front") == Down })
	ask(t, dial(t, addr), "x")
	f.stop()
	if _, err := dial(t, addr).Read(make([]byte, 1)); err == nil {
		t.Error("served by nobody")
	}
	eventually(t, "counted", func() bool { return p.Status().Frontends[0].Ended["no-backend"] == 1 })
}

// TestBigFramesThroughSplice: frames large enough for splice keep the tracker
// right, so that a later drain still finds the boundaries.
func TestBigFramesThroughSplice(t *testing.T) {
	t.Parallel()
	a := newSalt(t)
	p, addr := start(t, clusterConfig(a))
	upPorts(t, p, 2)
	c := dial(t, addr)
	r, err := hello(c, "SUB")
	if err != nil {
		t.Fatal(err)
	}

	eventually(t, "subscribed", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.subs) > 0 })
	const frames, size = 12, 3<<20 + 17
	go func() {
		for range frames {
			a.cast(appendFrame(nil, 0, make([]byte, size)))
		}
	}()

	for i := range frames {
		head := make([]byte, 9)
		if _, err := io.ReadFull(r, head); err != nil || head[0] != flagLong {
			t.Fatalf("frame %d: %x, %v", i, head, err)
		}
		if _, err := io.CopyN(io.Discard, r, size); err != nil {
			t.Fatal(err)
		}
	}

	var tr tracker
	l := p.allLoops()[0]
	eventually(t, "all seen", func() bool {
		l.runAndWait(func() { l.eachOpen(func(s *session) { tr = s.half[sideBackend].tracker }) })
		return tr.messages == frames && tr.betweenMessages()
	})
}

// TestSeveralLoops spreads sessions over loops started with the proxy and by
// hand, as lasting load does.
func TestSeveralLoops(t *testing.T) {
	b := newFake(t, "127.0.0.1:0", echo)
	cfg := testConfig(Publish, b)
	cfg.Loops, cfg.MaxLoops = 2, 3
	p, addr := start(t, cfg)
	cs := make([]net.Conn, 40)
	for i := range cs {
		cs[i] = dial(t, addr)
		ask(t, cs[i], "x")
	}

	for _, l := range p.allLoops() {
		if n := l.sessions.Load(); n < 15 || n > 25 {
			t.Errorf("loop %d has %d of 40", l.id, n)
		}
	}

	if n, err := p.Cut("b0", "front"); n != 40 || err != nil {
		t.Errorf("cut %d, %v", n, err)
	}
}
