package lbproxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"saltern/test/await"
)

// fds counts the descriptors of this process.
func fds(t testing.TB) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

// eventually waits until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	await.That(t, what, f)
}

// fake is a backend whose behaviour a test gives.
type fake struct {
	ln    net.Listener
	addr  *net.TCPAddr
	mu    sync.Mutex
	conns map[net.Conn]bool
	wg    sync.WaitGroup
	serve func(net.Conn)
}

func newFake(t testing.TB, addr string, serve func(net.Conn)) *fake {
	t.Helper()
	f := &fake{serve: serve, conns: map[net.Conn]bool{}}
	if err := f.start(addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.stop)
	return f
}

func (f *fake) start(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}

	f.ln, f.addr = ln, ln.Addr().(*net.TCPAddr)
	f.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}

			f.mu.Lock()
			f.conns[c] = true
			f.mu.Unlock()

			f.wg.Go(func() {
				f.serve(c)
				c.Close()
				f.mu.Lock()
				delete(f.conns, c)
				f.mu.Unlock()
			})
		}
	})

	return nil
}

// stop is what the end of a process looks like: port closed, connections reset.
func (f *fake) stop() {
	f.ln.Close()
	f.mu.Lock()
	for c := range f.conns {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	f.mu.Unlock()
	f.wg.Wait()
}

// echo hides the types from io.Copy, which would hold pipes for splicing.
func echo(c net.Conn) {
	io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	c.(*net.TCPConn).CloseWrite()
}

// testConfig is one frontend on loopback with quick checks.
func testConfig(mode Mode, backends ...*fake) Config {
	cfg := Config{
		Frontends: []Frontend{{Name: "front", Mode: mode, Bind: []string{"127.0.0.1:0"}}},
		Health: Health{Check: CheckTCP, Inter: 50 * time.Millisecond, FastInter: 10 * time.Millisecond,
			DownInter: 20 * time.Millisecond, Timeout: time.Second, SlowStart: -1},
		Rebalance: Rebalance{Off: true},
		Stop:      300 * time.Millisecond,
	}
	for i, b := range backends {
		cfg.Backends = append(cfg.Backends, Backend{Name: fmt.Sprint("b", i), Address: b.addr.IP.String(),
			PublishPort: b.addr.Port, RequestPort: b.addr.Port})
	}
	return cfg
}

// start runs a proxy until the test ends.
func start(t testing.TB, cfg Config, change ...func(*Proxy)) (*Proxy, string) {
	t.Helper()
	var log bytes.Buffer
	var mu sync.Mutex
	p, err := New(cfg, slog.New(slog.NewTextHandler(&lockedWriter{w: &log, mu: &mu}, nil)))
	if err != nil {
		t.Fatal(err)
	}

	p.tick = 50 * time.Millisecond
	for _, f := range change {
		f(p)
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("proxy does not stop")
		}

		if t.Failed() {
			mu.Lock()
			t.Logf("log:\n%s", log.String())
			mu.Unlock()
		}
	})

	select {
	case <-p.Ready():
	case err := <-done:
		done <- err
		t.Fatalf("run: %v", err)
	}

	return p, p.Addrs("front")[0].String()
}

type lockedWriter struct {
	w  io.Writer
	mu *sync.Mutex
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	return c.(*net.TCPConn)
}

func ask(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
		t.Fatalf("asked %q, got %q, %v", text, b, err)
	}
}

// upPorts waits until n ports are up.
func upPorts(t testing.TB, p *Proxy, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " ports up"), func() bool {
		k := 0
		for _, b := range p.Status().Backends {
			for _, port := range b.Ports {
				if port.State == Up {
					k++
				}
			}
		}
		return k == n
	})
}

func TestEchoBothFamilies(t *testing.T) {
	for _, host := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(host, func(t *testing.T) {
			b := newFake(t, host, echo)
			cfg := testConfig(Request, b)
			cfg.Frontends[0].Bind = []string{host}
			_, addr := start(t, cfg)
			c := dial(t, addr)
			for i := range 10 {
				ask(t, c, fmt.Sprint("hello ", i))
			}
		})
	}
}

// TestBulkIntact sends more than any buffer holds both ways at once and
// compares digests; the sizes go through copy, pending and splice.
func TestBulkIntact(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 4 << 10, 300 << 10, 24 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			b := newFake(t, "127.0.0.1:0", echo)
			_, addr := start(t, testConfig(Request, b))
			data := make([]byte, size)
			rand.Read(data)
			c := dial(t, addr)
			go func() {
				c.Write(data)
				c.CloseWrite()
			}()

			h := sha256.New()
			n, err := io.Copy(h, c)
			if err != nil || n != int64(size) || !bytes.Equal(h.Sum(nil), sumOf(data)) {
				t.Fatalf("%d of %d bytes back, %v", n, size, err)
			}
		})
	}
}

func sumOf(b []byte) []byte { s := sha256.Sum256(b); return s[:] }

func TestHalfClose(t *testing.T) {
	t.Run("client ends first", func(t *testing.T) {
		b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
			n, _ := io.Copy(io.Discard, c)
			time.Sleep(50 * time.Millisecond)
			fmt.Fprint(c, "got ", n)
		})

		_, addr := start(t, testConfig(Request, b))
		c := dial(t, addr)
		c.Write(make([]byte, 1<<20))
		c.CloseWrite()

		if got, err := io.ReadAll(c); err != nil || string(got) != "got 1048576" {
			t.Fatalf("%q, %v", got, err)
		}
	})

	t.Run("backend ends first", func(t *testing.T) {
		got := make(chan string, 4)
		b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
			fmt.Fprint(c, "bye")
			c.(*net.TCPConn).CloseWrite()
			b, _ := io.ReadAll(c)
			if len(b) > 0 { // a check sends nothing
				got <- string(b)
			}
		})

		_, addr := start(t, testConfig(Request, b))
		c := dial(t, addr)
		if s, err := io.ReadAll(c); err != nil || string(s) != "bye" {
			t.Fatalf("%q, %v", s, err)
		}

		io.WriteString(c, "still here")
		c.CloseWrite()
		if s := <-got; s != "still here" {
			t.Fatalf("backend got %q", s)
		}
	})
}

func TestHeldSessionsLeaveNothingBehind(t *testing.T) {
	b := newFake(t, "127.0.0.1:0", echo)
	p, addr := start(t, testConfig(Publish, b))
	upPorts(t, p, 1)
	time.Sleep(20 * time.Millisecond)
	before := fds(t)

	for range 3 {
		var cs []*net.TCPConn
		for range 200 {
			c := dial(t, addr)
			ask(t, c, "x")
			cs = append(cs, c)
		}

		if st := p.Status(); st.Sessions != 200 {
			t.Fatalf("%d sessions", st.Sessions)
		}

		for i, c := range cs {
			if i%2 == 0 {
				c.SetLinger(0)
			}
			c.Close()
		}

		eventually(t, "sessions gone", func() bool { return p.Status().Sessions == 0 })
	}

	eventually(t, "descriptors back", func() bool { return fds(t) <= before+2 })
	if st := p.Status(); st.FDs.Free != st.FDs.Budget {
		t.Errorf("budget %+v", st.FDs)
	}
}

func TestAdmin(t *testing.T) {
	b0, b1 := newFake(t, "127.0.0.1:0", echo), newFake(t, "127.0.0.1:0", echo)
	cfg := testConfig(Request, b0)
	cfg.Admin.Socket = filepath.Join(t.TempDir(), "lb.sock")
	p, addr := start(t, cfg)
	upPorts(t, p, 1)

	if st, err := os.Stat(cfg.Admin.Socket); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("socket mode %v, %v", st.Mode(), err)
	}

	c, ctx := NewClient(cfg.Admin.Socket), t.Context()
	if err := c.Add(ctx,
		Backend{Name: "b1", Address: "127.0.0.1", PublishPort: b1.addr.Port, RequestPort: b1.addr.Port}); err != nil {
		t.Fatal(err)
	}

	if err := c.Add(ctx, Backend{Name: "b1", Address: "127.0.0.1"}); !errors.Is(err, errExists) {
		t.Errorf("second add: %v", err)
	}

	upPorts(t, p, 2)
	if err := c.Drain(ctx, "b0"); err != nil {
		t.Fatal(err)
	}

	for range 5 {
		ask(t, dial(t, addr), "x")
	}

	st, err := c.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}

	if st.Backends[0].Ports[0].Sessions != 0 || st.Backends[1].Ports[0].Sessions != 5 || !st.Backends[0].Drain {
		t.Errorf("drain: %+v", st.Backends)
	}

	if n, err := c.Cut(ctx, "b1", ""); err != nil || n != 5 {
		t.Errorf("cut %d, %v", n, err)
	}

	if _, err := c.Cut(ctx, "b1", "none"); !errors.Is(err, errNoBackend) {
		t.Errorf("cut of unknown frontend: %v", err)
	}

	if err := c.Undrain(ctx, "b0"); err != nil {
		t.Error(err)
	}

	if err := c.Weight(ctx, "b0", 7); err != nil || p.Status().Backends[0].Weight != 7 {
		t.Errorf("weight: %v", err)
	}

	if err := c.Weight(ctx, "b0", 0); err == nil {
		t.Error("weight 0 taken")
	}

	if err := c.Maint(ctx, "nobody"); !errors.Is(err, errNoBackend) {
		t.Errorf("maint of nobody: %v", err)
	}

	if err := c.Remove(ctx, "b0", true); err != nil {
		t.Error(err)
	}

	eventually(t, "b0 gone", func() bool { return len(p.Status().Backends) == 1 })
	m, err := c.Metrics(ctx)
	if err != nil || !bytes.Contains(m, []byte(`saltern_lb_backend_up{backend="b1",frontend="front"} 1`)) {
		t.Errorf("metrics: %v\n%s", err, m)
	}
}
