package lbproxy

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"saltern/internal/proxyproto"
	"saltern/test/await"
)

// rough is a kernel that interrupts and shortens: what a loaded machine does
// now and then, all the time.
type rough struct {
	kernel
	rng  *rand.Rand
	hits int
}

func (r *rough) bump() bool {
	if r.rng.IntN(3) == 0 {
		r.hits++
		return true
	}
	return false
}

func (r *rough) recv(fd int, p []byte, flags int) (int, unix.Errno) {
	if r.bump() {
		return -1, unix.EINTR
	}
	return r.kernel.recv(fd, p, flags)
}

func (r *rough) send(fd int, p []byte) (int, unix.Errno) {
	if r.bump() {
		return -1, unix.EINTR
	}
	if len(p) > 1 && r.bump() {
		p = p[:1+r.rng.IntN(len(p)-1)]
	}
	return r.kernel.send(fd, p)
}

func (r *rough) splice(in, out, n int) (int, unix.Errno) {
	if r.bump() {
		return -1, unix.EINTR
	}
	if n > 1 && r.bump() {
		n = 1 + r.rng.IntN(n-1)
	}
	return r.kernel.splice(in, out, n)
}

func (r *rough) accept(fd int) (int, netip.AddrPort, unix.Errno) {
	if r.bump() {
		return -1, netip.AddrPort{}, [...]unix.Errno{unix.EINTR, unix.ECONNABORTED, unix.EAGAIN}[r.rng.IntN(3)]
	}
	return r.kernel.accept(fd)
}

func (r *rough) connect(fd int, to netip.AddrPort) unix.Errno {
	e := r.kernel.connect(fd, to)
	if e == 0 && r.bump() {
		return unix.EINTR // connected all the same, as connect(2) says
	}
	return e
}

func (r *rough) epollWait(ep int, ev []unix.EpollEvent, limit time.Duration) (int, unix.Errno) {
	if r.bump() {
		return -1, unix.EINTR
	}
	return r.kernel.epollWait(ep, ev, limit)
}

func TestRoughKernel(t *testing.T) {
	for seed := range uint64(4) {
		b := newFake(t, "127.0.0.1:0", echo)
		r := &rough{kernel: linux{}, rng: rand.New(rand.NewPCG(seed, 2))}
		_, addr := start(t, testConfig(Request, b), func(p *Proxy) { p.kernel = r })
		for _, size := range []int{1, 5000, 3 << 20} {
			data := make([]byte, size)
			for i := range data {
				data[i] = byte(r0(i))
			}

			c := dial(t, addr)
			go func() {
				c.Write(data)
				c.CloseWrite()
			}()

			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("seed %d: %d of %d bytes, %v", seed, len(got), size, err)
			}
		}
	}
}

func r0(i int) int { return i * 2654435761 >> 7 }

// failing refuses one kind of call with one error, some times.
type failing struct {
	kernel
	e       unix.Errno
	accepts int
}

func (f *failing) accept(fd int) (int, netip.AddrPort, unix.Errno) {
	if f.accepts > 0 {
		f.accepts--
		return -1, netip.AddrPort{}, f.e
	}
	return f.kernel.accept(fd)
}

// TestOutOfDescriptors: the connection that cannot be taken is refused, not
// left to wake the loop for ever, and later ones are served.
func TestOutOfDescriptors(t *testing.T) {
	b := newFake(t, "127.0.0.1:0", echo)
	k := &failing{kernel: linux{}, e: unix.EMFILE, accepts: 1}
	p, addr := start(t, testConfig(Request, b), func(p *Proxy) { p.kernel = k })
	c := dial(t, addr)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("served")
	}

	ask(t, dial(t, addr), "x")
	if n := p.Status().Frontends[0].Refused["descriptors"]; n != 1 {
		t.Errorf("%d refused", n)
	}

	p.spareMu.Lock()
	defer p.spareMu.Unlock()
	if p.spareFD < 0 {
		t.Error("no spare descriptor")
	}
}

func TestDescriptorBudget(t *testing.T) {
	b := newFake(t, "127.0.0.1:0", echo)
	cfg := testConfig(Request, b)
	cfg.Limits.Descriptors = reservedFDs + 6
	p, addr := start(t, cfg)
	var cs []net.Conn
	for range 3 {
		c := dial(t, addr)
		ask(t, c, "x")
		cs = append(cs, c)
	}

	if _, err := dial(t, addr).Read(make([]byte, 1)); err == nil {
		t.Fatal("served above the budget")
	}

	cs[0].Close()
	eventually(t, "room again", func() bool { return p.budget.left.Load() == 2 })
	ask(t, dial(t, addr), "x")
}

// reset closes with RST.
func reset(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

func TestResets(t *testing.T) {
	t.Parallel()
	t.Run("client resets while open", func(t *testing.T) {
		gone := make(chan error, 1)
		b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
			buf := make([]byte, 1)
			if _, err := io.ReadFull(c, buf); err != nil {
				return
			}
			c.Write(buf)
			_, err := c.Read(buf)
			gone <- err
		})

		p, addr := start(t, testConfig(Publish, b))
		c := dial(t, addr)
		ask(t, c, "x")
		reset(c)

		if err := <-gone; err == nil {
			t.Error("backend still hears")
		}

		eventually(t, "closed", func() bool { return p.Status().Sessions == 0 })
		if st := p.Status(); st.Frontends[0].Ended["client-reset"] != 1 {
			t.Errorf("%v", st.Frontends[0].Ended)
		}
	})

	t.Run("backend resets, what it sent before arrives", func(t *testing.T) {
		heard := make(chan struct{})
		b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
			buf := make([]byte, 1)
			if _, err := io.ReadFull(c, buf); err != nil {
				return
			}
			io.WriteString(c, "last words")
			<-heard
			reset(c)
		})

		p, addr := start(t, testConfig(Request, b))
		c := dial(t, addr)
		io.WriteString(c, "x")
		got := make([]byte, len("last words"))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "last words" {
			t.Errorf("got %q, %v", got, err)
		}

		close(heard)
		if more, _ := io.ReadAll(c); len(more) > 0 {
			t.Errorf("then %q", more)
		}

		eventually(t, "closed", func() bool { return p.Status().Frontends[0].Ended["backend-reset"] == 1 })
	})

	t.Run("client resets while no backend answers", func(t *testing.T) {
		hole := newHole(t)
		cfg := testConfig(Request)
		cfg.Backends = []Backend{{Name: "hole", Address: "127.0.0.1", RequestPort: hole}}
		p, addr := start(t, cfg)
		c := dial(t, addr)
		eventually(t, "dialling", func() bool { return p.Status().Sessions == 1 })
		reset(c)
		eventually(t, "closed", func() bool { return p.Status().Sessions == 0 })
	})

	t.Run("client resets after its half-close", func(t *testing.T) {
		ended, gone := make(chan struct{}), make(chan struct{})
		b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
			if n, _ := io.Copy(io.Discard, c); n > 0 {
				close(ended)
				<-gone
			}
		})

		p, addr := start(t, testConfig(Request, b))
		c := dial(t, addr)
		io.WriteString(c, "x")
		c.CloseWrite()
		<-ended
		reset(c)
		close(gone)
		eventually(t, "closed", func() bool { return p.Status().Sessions == 0 })
	})

	t.Run("client resets inside a PROXY header", func(t *testing.T) {
		b := newFake(t, "127.0.0.1:0", echo)
		cfg := testConfig(Request, b)
		cfg.Frontends[0].ProxyFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		p, addr := start(t, cfg)
		c := dial(t, addr)
		io.WriteString(c, proxyproto.Signature[:5])
		eventually(t, "reading it", func() bool { return p.Status().Sessions == 1 })
		reset(c)
		settles(t, p)
	})

	t.Run("client resets while two dials go on", func(t *testing.T) {
		cfg := testConfig(Request)
		cfg.Backends = []Backend{
			{Name: "a", Address: "127.0.0.1", RequestPort: newHole(t)},
			{Name: "b", Address: "127.0.0.1", RequestPort: newHole(t)},
		}

		cfg.Connect = Connect{Hedge: 10 * time.Millisecond, Timeout: time.Minute}
		p, addr := start(t, cfg)
		c := dial(t, addr)
		eventually(t, "two dials", func() bool { return p.Status().Hedges > 0 })
		reset(c)
		settles(t, p)
	})

	// Much is under way: bytes in a pipe, held here, left in the kernel.
	for _, who := range []string{"client", "backend"} {
		t.Run(who+" resets in the middle of much", func(t *testing.T) {
			b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
				chunk := make([]byte, 256<<10)
				for i := range 64 {
					if _, err := c.Write(chunk); err != nil {
						return
					}
					if who == "backend" && i == 40 {
						reset(c)
					}
				}
			})

			p, addr := start(t, testConfig(Request, b))
			for i := range 8 {
				c := dial(t, addr)
				n, _ := io.CopyN(io.Discard, struct{ io.Reader }{c}, int64(i+1)<<20)
				if who == "client" {
					reset(c)
				} else if m, _ := io.Copy(io.Discard, struct{ io.Reader }{c}); n+m > 41*256<<10 {
					t.Errorf("%d bytes of %d", n+m, 41*256<<10)
				}

				c.Close()
			}

			settles(t, p)
		})
	}

	t.Run("backend resets with client bytes under way", func(t *testing.T) {
		b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
			if n, _ := c.Read(make([]byte, 10)); n > 0 {
				reset(c)
			}
		})

		p, addr := start(t, testConfig(Request, b))
		c := dial(t, addr)
		for {
			if _, err := c.Write(make([]byte, 64<<10)); err != nil {
				break
			}
		}

		eventually(t, "closed", func() bool { return p.Status().Sessions == 0 })
	})
}

// newHole is a port whose connects stay unanswered: a full accept queue.
func newHole(t testing.TB) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}

	addr := localAddr(fd)
	for range 8 {
		c, err := net.DialTimeout("tcp", addr.String(), 50*time.Millisecond)
		if err != nil {
			return int(addr.Port())
		}
		t.Cleanup(func() { c.Close() })
	}

	t.Fatal("the accept queue does not fill")
	return 0
}

// TestHedge: one of two backends has vanished; nobody waits much longer than
// the hedge time.
func TestHedge(t *testing.T) {
	t.Parallel()
	b := newFake(t, "127.0.0.1:0", echo)
	cfg := testConfig(Request, b)
	cfg.Backends = append(cfg.Backends, Backend{Name: "hole", Address: "127.0.0.1", RequestPort: newHole(t)})
	cfg.Frontends[0].Balance = roundRobin
	cfg.Connect.Hedge = 50 * time.Millisecond
	cfg.Health.Timeout = time.Minute  // checks must not notice first,
	cfg.Connect.Timeout = time.Minute // nor the limit end it
	p, addr := start(t, cfg)
	for _, m := range p.frontends[0].currentMembers() {
		m.state.Store(int32(Up)) // it was, and nobody has noticed yet
	}

	for range 6 {
		began := time.Now()
		ask(t, dial(t, addr), "x")
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("waited %v", d)
		}
	}

	st := p.Status()
	if st.Hedges == 0 || st.Backends[0].Ports[0].Sessions != 6 || st.Backends[1].Ports[0].Sessions != 0 {
		t.Errorf("%+v", st)
	}

	eventually(t, "losing dials closed", func() bool { return p.budget.size.Load()-p.budget.left.Load() == 12 })
}

func TestConnectTimeout(t *testing.T) {
	t.Parallel()
	cfg := testConfig(Request)
	cfg.Backends = []Backend{{Name: "hole", Address: "127.0.0.1", RequestPort: newHole(t)}}
	cfg.Connect.Timeout = 200 * time.Millisecond
	p, addr := start(t, cfg)
	began := time.Now()

	if _, err := dial(t, addr).Read(make([]byte, 1)); err == nil {
		t.Fatal("served")
	}

	if d := time.Since(began); d < 150*time.Millisecond || d > 30*time.Second {
		t.Errorf("refused after %v", d)
	}

	if e := p.Status().Frontends[0].Ended; e["connect-timeout"] != 1 {
		t.Errorf("%v", e)
	}

	eventually(t, "budget given back", func() bool { return p.budget.left.Load() == p.budget.size.Load() })
}

// TestSlowReader (row 24): a client that does not read stops its backend and
// nobody else; what is held for it is bounded; it is cut after the stall limit.
func TestAttack24SlowReader(t *testing.T) {
	t.Parallel()
	sent := make(chan int, 1)
	b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
		buf := make([]byte, 1)
		if _, err := io.ReadFull(c, buf); err != nil {
			return
		}
		if buf[0] != 'S' {
			c.Write(buf)
			echo(c)
			return
		}

		n := 0
		chunk := make([]byte, 64<<10)
		for {
			k, err := c.Write(chunk)
			n += k
			if err != nil {
				sent <- n
				return
			}
		}
	})

	cfg := testConfig(Publish, b)
	cfg.Frontends[0].Stall = time.Second
	cfg.Rebalance.Off = true
	p, addr := start(t, cfg)
	slow := dial(t, addr)
	slow.SetReadBuffer(4096)
	io.WriteString(slow, "S")
	bounded := func() bool { return p.Status().Pending <= 2*bufSize }
	await.Holds(t, 300*time.Millisecond, "little is held", bounded)
	good := dial(t, addr)
	for range 50 {
		ask(t, good, "x")
	}

	if !bounded() {
		t.Errorf("%d bytes held", p.Status().Pending)
	}

	select {
	case n := <-sent:
		if n > 64<<20 {
			t.Errorf("backend sent %d bytes to a reader that takes none", n)
		}
	case <-time.After(time.Minute):
		t.Fatal("slow reader is not cut")
	}

	ask(t, good, "still served")
	if e := p.Status().Frontends[0].Ended; e["stall"] != 1 {
		t.Errorf("%v", e)
	}
}

// TestManySlowReaders: the bytes held for all of them stay within the limit,
// and none of theirs is lost.
func TestAttack24PendingBound(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
		buf := make([]byte, 1)
		if _, err := io.ReadFull(c, buf); err == nil {
			chunk := make([]byte, 64<<10)
			for range size / len(chunk) {
				c.Write(chunk)
			}
		}
	})

	cfg := testConfig(Request, b)
	cfg.Limits.Pending = 2 * bufSize
	cfg.Health.Timeout = 20 * time.Second
	p, addr := start(t, cfg)
	var cs []*net.TCPConn
	for range 12 {
		c := dial(t, addr)
		io.WriteString(c, "x")
		cs = append(cs, c)
	}

	await.Holds(t, 200*time.Millisecond, "little is held", func() bool { return p.Status().Pending <= 2*bufSize })
	for i, c := range cs {
		if got, err := io.Copy(io.Discard, struct{ io.Reader }{c}); err != nil || got != size {
			t.Fatalf("reader %d: %d bytes, %v", i, got, err)
		}
	}
}

// TestSessionSize: the allocator rounds up to 256, 288, 320 bytes, and tens of
// thousands of sessions may be open.
func TestSessionSize(t *testing.T) {
	if n := unsafe.Sizeof(session{}); n > 256 {
		t.Errorf("a session takes %d bytes, not 256", n)
	}
}

// TestHeard: what this machine's own clients send is no sign that anybody reaches it.
func TestHeard(t *testing.T) {
	var l loop
	l.now = 7
	l.noteClient(&session{localClient: true})
	if l.lastHeard.Load() != 0 {
		t.Error("a client of this machine counts")
	}
	l.noteClient(&session{})
	if l.lastHeard.Load() != 7 {
		t.Error("a client of another machine does not count")
	}
}
