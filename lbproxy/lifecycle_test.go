package lbproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestHandover(t *testing.T) {
	b := newFake(t, "127.0.0.1:0", echo)
	dir := t.TempDir()
	cfg := testConfig(Publish, b)
	cfg.Admin.Handover = filepath.Join(dir, "handover")
	cfg.Admin.Socket = filepath.Join(dir, "admin")
	cfg.Rebalance.Rate, cfg.Rebalance.Quiet = 1, time.Millisecond
	old, addr := start(t, cfg)
	held := dial(t, addr)
	ask(t, held, "x")

	h, err := takeOver(t.Context(), cfg.Admin.Handover)
	if err != nil {
		t.Fatal(err)
	}

	h.Abort() // the old one must go on after a failed attempt
	ask(t, dial(t, addr), "x")

	if h, err = takeOver(t.Context(), cfg.Admin.Handover); err != nil {
		t.Fatal(err)
	}

	next := testConfig(Publish, b)
	next.Frontends[0].Bind, next.Admin = []string{addr}, cfg.Admin
	_, again := start(t, next, func(p *Proxy) {
		if err := p.Inherit(h.Files); err != nil {
			t.Fatal(err)
		}
	})

	if st, err := NewClient(cfg.Admin.Socket).Status(t.Context()); err != nil || st.Sessions != 0 {
		t.Errorf("the admin socket is not the new proxy's: %+v, %v", st, err)
	}

	if again != addr {
		t.Fatalf("new proxy listens on %s, not %s", again, addr)
	}

	if err := h.Done(); err != nil {
		t.Fatal(err)
	}

	eventually(t, "old proxy has let go", func() bool { _, err := old.Listeners(); return errors.Is(err, errStopped) })
	ask(t, held, "x") // held sessions are not broken by the hand-over itself
	for range 20 {
		ask(t, dial(t, addr), "x")
	}

	if n := old.Status().Frontends[0].Accepted; n > 4 {
		t.Errorf("old proxy accepted %d", n)
	}
}

// TestListenersStayNonBlocking: the descriptors share their flags with ours;
// a blocking listener would stop the loop in accept.
func TestListenersStayNonBlocking(t *testing.T) {
	b := newFake(t, "127.0.0.1:0", echo)
	p, addr := start(t, testConfig(Request, b))
	files, err := p.Listeners()
	if err != nil || len(files) != 1 {
		t.Fatalf("%d, %v", len(files), err)
	}
	fd := int(files[0].Fd()) // os.File.Fd may set blocking mode
	if fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || fl&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %#x, %v", fl, err)
	}
	files[0].Close()
	ask(t, dial(t, addr), "x")
}

func TestPortInUse(t *testing.T) {
	b := newFake(t, "127.0.0.1:0", echo)
	cfg := testConfig(Request, b)
	cfg.Frontends[0].Bind = []string{b.addr.String(), "127.0.0.1:0"}
	p, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}

	before := fds(t)
	if err := p.Run(t.Context()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("run: %v", err)
	}

	if n := fds(t); n > before {
		t.Errorf("%d descriptors left", n-before)
	}

	if err := p.Run(t.Context()); err == nil {
		t.Error("ran twice")
	}
}

func TestStopLetsRequestsFinish(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
		buf := make([]byte, 1)
		if _, err := io.ReadFull(c, buf); err == nil {
			close(asked)
			<-answer
			c.Write(buf)
			io.Copy(io.Discard, c)
		}
	})

	cfg := testConfig(Request, b)
	cfg.Stop = time.Minute
	p, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}

	before := fds(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	<-p.Ready()
	addr := p.Addrs("front")[0].String()
	c := dial(t, addr)
	io.WriteString(c, "x")
	<-asked
	cancel()
	eventually(t, "no longer listening", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})

	close(answer)
	buf := make([]byte, 1)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Errorf("answer lost: %v", err)
	}

	c.Close()
	began := time.Now()
	if err := <-done; err != nil {
		t.Error(err)
	}

	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("stopped %v after the last answer", d)
	}

	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("still listening")
	}

	eventually(t, "descriptors back", func() bool { return fds(t) <= before+1 })
	if err := p.Drain("b0"); err != nil {
		t.Errorf("drain after the end: %v", err)
	}

	if _, err := p.Cut("b0", ""); !errors.Is(err, errStopped) {
		t.Errorf("cut after the end: %v", err)
	}
}

// TestServeTakesOver: a second proxy with the same configuration takes the
// place of the first without a refused connection or a lost request; what was
// set there stays set, metrics included; the first ends by itself.
func TestServeTakesOver(t *testing.T) {
	t.Parallel()
	a, b := newSalt(t), newSalt(t)
	dir := t.TempDir()
	cfg := Config{Backends: []Backend{a.backend("a"), b.backend("b")},
		Frontends: []Frontend{
			{Name: "pub", Mode: Publish, Bind: []string{freeAddr(t)}},
			{Name: "req", Mode: Request, Bind: []string{freeAddr(t)}},
		},
		Admin: Admin{
			Socket:   filepath.Join(dir, "admin"),
			Handover: filepath.Join(dir, "handover"),
			Metrics:  freeAddr(t),
		},
		Rebalance: Rebalance{Rate: 1, Quiet: time.Second}, Stop: time.Minute}

	serve := func() (context.CancelFunc, chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, cfg, nil) }()
		return cancel, done
	}

	client := NewClient(cfg.Admin.Socket)
	status := func() Status {
		st, err := client.Status(t.Context())
		if err != nil {
			return Status{}
		}
		return st
	}

	metrics := func() bool {
		resp, err := http.Get("http://" + cfg.Admin.Metrics + "/metrics")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}

	stopOld, old := serve()
	defer stopOld()
	eventually(t, "serves", func() bool {
		st := status()
		return len(st.Frontends) == 2 && st.Frontends[0].Serving && st.Frontends[1].Serving
	})

	if err := errors.Join(client.Drain(t.Context(), "b"), client.Weight(t.Context(), "a", 7)); err != nil {
		t.Fatal(err)
	}

	minions := herd(t, cfg.Frontends[0].Bind[0], 20)
	ctx, cancel := context.WithCancel(t.Context())
	var lost, answered atomic.Int64
	var asking sync.WaitGroup
	for i := range 4 {
		asking.Go(func() {
			for ctx.Err() == nil {
				if err := asks(cfg.Frontends[1].Bind[0], 1+i); err != nil {
					lost.Add(1)
					t.Log(err)
				}
				answered.Add(1)
			}
		})
	}

	eventually(t, "load", func() bool { return status().Frontends[0].Sessions == 20 && answered.Load() > 100 })

	stopNew, next := serve()
	defer stopNew()
	select {
	case err := <-old:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the old proxy does not end")
	}

	before := answered.Load()
	eventually(t, "all minions are back",
		func() bool { return status().Frontends[0].Sessions == 20 && answered.Load() > before+100 })
	cancel()
	asking.Wait()

	if lost.Load() > 0 {
		t.Errorf("%d of %d requests lost", lost.Load(), answered.Load())
	}

	for i, m := range minions {
		if m.broken.Load() > 0 {
			t.Errorf("minion %d was cut inside a frame", i)
		}
	}

	st := status()
	if len(st.Backends) != 2 || st.Backends[0].Weight != 7 || st.Backends[0].Drain || !st.Backends[1].Drain {
		t.Errorf("what was set is lost: %+v", st.Backends)
	}

	eventually(t, "metrics", metrics)
	stopNew()
	if err := <-next; err != nil {
		t.Error(err)
	}

	// The sockets are left over, and nobody is behind them: an ordinary start.
	stopLast, last := serve()
	eventually(t, "serves again",
		func() bool { st := status(); return len(st.Frontends) == 2 && st.Frontends[1].Serving })
	stopLast()

	if err := <-last; err != nil {
		t.Error(err)
	}
}

// asks makes n requests on one connection, a while apart.
func asks(addr string, n int) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()

	r, err := hello(c, "REQ")
	if err != nil {
		return err
	}

	for range n {
		if _, err := c.Write(appendFrame(appendFrame(nil, flagMore, nil), 0, []byte("ask"))); err != nil {
			return err
		}
		if _, err := readReply(c, r); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}

	return nil
}

func freeAddr(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// TestServeBesideAHungOne: an earlier proxy that does not answer is not taken
// for nobody.
func TestServeBesideAHungOne(t *testing.T) {
	dir := t.TempDir()
	ln, err := net.Listen("unix", filepath.Join(dir, "handover"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close() // no listeners
		}
	}()

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	cfg := Config{Frontends: []Frontend{{Name: "req", Mode: Request, Bind: []string{taken.Addr().String()}}},
		Admin: Admin{Handover: filepath.Join(dir, "handover")}}
	if err := Serve(t.Context(), cfg, nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("serve: %v", err)
	}
}
