package lbproxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// faulty fails single calls of the kernel: each function says with what, 0 for
// not at all, and gets the call's count from 1.
type faulty struct {
	kernel
	recvE, sendE, spliceE, acceptE, connectE, waitE func(n int64) unix.Errno
	recvs, sends, splices, accepts, connects, waits atomic.Int64
}

func fails(f func(int64) unix.Errno, n *atomic.Int64) unix.Errno {
	if f == nil {
		return 0
	}
	return f(n.Add(1))
}

func (k *faulty) recv(fd int, p []byte, flags int) (int, unix.Errno) {
	if e := fails(k.recvE, &k.recvs); e != 0 {
		return -1, e
	}
	return k.kernel.recv(fd, p, flags)
}

func (k *faulty) send(fd int, p []byte) (int, unix.Errno) {
	if e := fails(k.sendE, &k.sends); e != 0 {
		return -1, e
	}
	return k.kernel.send(fd, p)
}

func (k *faulty) splice(in, out, n int) (int, unix.Errno) {
	if e := fails(k.spliceE, &k.splices); e != 0 {
		return -1, e
	}
	return k.kernel.splice(in, out, n)
}

func (k *faulty) accept(fd int) (int, netip.AddrPort, unix.Errno) {
	if e := fails(k.acceptE, &k.accepts); e != 0 {
		return -1, netip.AddrPort{}, e
	}
	return k.kernel.accept(fd)
}

func (k *faulty) connect(fd int, to netip.AddrPort) unix.Errno {
	if e := fails(k.connectE, &k.connects); e != 0 {
		return e
	}
	return k.kernel.connect(fd, to)
}

func (k *faulty) epollWait(ep int, ev []unix.EpollEvent, limit time.Duration) (int, unix.Errno) {
	if e := fails(k.waitE, &k.waits); e != 0 {
		return -1, e
	}
	return k.kernel.epollWait(ep, ev, limit)
}

func once(e unix.Errno) func(int64) unix.Errno {
	return func(n int64) unix.Errno {
		if n == 1 {
			return e
		}
		return 0
	}
}

// settles waits until nothing of any session is left.
func settles(t *testing.T, p *Proxy) {
	t.Helper()
	eventually(t, "sessions and budget back", func() bool {
		return p.Status().Sessions == 0 && p.budget.left.Load() == p.budget.size.Load() && p.Status().Pending == 0
	})
}

// TestSyscallAccept: what accept(2) says of one connection is no fault of the
// listener, and short of memory or descriptors it goes on too.
func TestSyscallAccept(t *testing.T) {
	t.Parallel()
	b := newFake(t, "127.0.0.1:0", echo)
	for _, e := range []unix.Errno{unix.EINTR, unix.EAGAIN, unix.ECONNABORTED, unix.EPROTO, unix.EPERM, unix.ENETDOWN,
		unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EINVAL} {
		k := &faulty{kernel: linux{}, acceptE: once(e)}
		_, addr := start(t, testConfig(Request, b), func(p *Proxy) { p.kernel = k })
		ask(t, dial(t, addr), "x")
	}

	for _, e := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		k := &faulty{kernel: linux{}, acceptE: once(e)}
		p, addr := start(t, testConfig(Request, b), func(p *Proxy) { p.kernel = k })
		if _, err := dial(t, addr).Read(make([]byte, 1)); err == nil {
			t.Errorf("%v: served", e)
		}

		ask(t, dial(t, addr), "x")
		if n := p.Status().Frontends[0].Refused["descriptors"]; n != 1 {
			t.Errorf("%v: %d refused", e, n)
		}
	}
}

// TestSyscallConnect: a dial that fails at once goes on with the next backend;
// only what the network says counts against the first.
func TestSyscallConnect(t *testing.T) {
	t.Parallel()
	a, b := newFake(t, "127.0.0.1:0", echo), newFake(t, "127.0.0.1:0", echo)
	for e, marks := range map[unix.Errno]uint64{
		unix.EINTR:         0,
		unix.EADDRNOTAVAIL: 0,
		unix.EAGAIN:        0,
		unix.ENOBUFS:       0,
		unix.EPERM:         0,
		unix.ECONNREFUSED:  1,
		unix.ENETUNREACH:   1,
		unix.EHOSTUNREACH:  1,
		unix.ETIMEDOUT:     1,
		unix.ECONNRESET:    1,
	} {
		k := &faulty{kernel: linux{}}
		k.connectE = func(n int64) unix.Errno {
			if n > 1 {
				return 0
			}
			if e == unix.EINTR { // connect(2): it goes on all the same
				return 0
			}
			return e
		}

		p, addr := start(t, testConfig(Request, a, b), func(p *Proxy) { p.kernel = k })
		c := dial(t, addr)
		ask(t, c, "x")
		var refusals uint64
		for _, be := range p.Status().Backends {
			refusals += be.Ports[0].Refusals
		}

		if refusals != marks {
			t.Errorf("%v: %d marks, want %d", e, refusals, marks)
		}

		c.Close()
		settles(t, p)
	}

	// With nobody left the client is told.
	k := &faulty{kernel: linux{}, connectE: func(int64) unix.Errno { return unix.EADDRNOTAVAIL }}
	p, addr := start(t, testConfig(Request, a, b), func(p *Proxy) { p.kernel = k })
	if _, err := dial(t, addr).Read(make([]byte, 1)); err == nil {
		t.Error("served")
	}

	settles(t, p)
}

// TestSyscallRecvSend: a failing read or write ends the session, all of it, and
// nobody else's.
func TestSyscallRecvSend(t *testing.T) {
	t.Parallel()
	b := newFake(t, "127.0.0.1:0", echo)
	for _, e := range []unix.Errno{unix.ECONNRESET, unix.ETIMEDOUT, unix.EPIPE, unix.ENOBUFS, unix.EHOSTUNREACH} {
		for _, k := range []*faulty{{recvE: once(e)}, {sendE: once(e)}} {
			k.kernel = linux{}
			p, addr := start(t, testConfig(Request, b), func(p *Proxy) { p.kernel = k })
			c := dial(t, addr)
			if _, err := io.WriteString(c, "x"); err != nil {
				t.Fatal(err)
			}

			if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Errorf("%v: answered", e)
			}

			c.Close()
			settles(t, p)
			ask(t, dial(t, addr), "x")
		}
	}
}

// TestSyscallSplice: where splice does not work bytes are copied, and none is
// lost; a real failure ends the session.
func TestSyscallSplice(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
	b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
		// Not ZMTP: bytes need not be looked at, so much is spliced.
		c.Write(data)
		io.Copy(io.Discard, struct{ io.Reader }{c})
	})

	fetch := func(k *faulty) ([]byte, error) {
		k.kernel = linux{}
		p, addr := start(t, testConfig(Request, b), func(p *Proxy) { p.kernel = k })
		c := dial(t, addr)
		c.SetReadBuffer(64 << 10)
		var got bytes.Buffer
		_, err := io.CopyN(&got, struct{ io.Reader }{c}, int64(len(data)))
		c.Close()
		settles(t, p)

		return got.Bytes(), err
	}

	for _, e := range []unix.Errno{unix.EINTR, unix.EINVAL} {
		if got, err := fetch(&faulty{spliceE: func(n int64) unix.Errno {
			if n%2 == 1 && (e == unix.EINTR || n == 1) {
				return e
			}
			return 0
		}}); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%v: %d of %d bytes, %v", e, len(got), len(data), err)
		}
	}

	k := &faulty{spliceE: func(int64) unix.Errno { return unix.ENOMEM }}
	if got, err := fetch(k); k.splices.Load() > 0 && err == nil {
		t.Errorf("ENOMEM: all of %d bytes arrived", len(got))
	}
}

// TestSyscallWait: an interrupted wait is repeated; one that cannot work ends
// Run with an error instead of a loop that does nothing.
func TestSyscallWait(t *testing.T) {
	t.Parallel()
	b := newFake(t, "127.0.0.1:0", echo)
	_, addr := start(t, testConfig(Request, b), func(p *Proxy) {
		p.kernel = &faulty{kernel: linux{}, waitE: func(n int64) unix.Errno {
			if n%2 == 1 {
				return unix.EINTR
			}
			return 0
		}}
	})

	ask(t, dial(t, addr), "x")

	p, err := New(testConfig(Request, b), nil)
	if err != nil {
		t.Fatal(err)
	}

	p.kernel = &faulty{kernel: linux{}, waitE: func(n int64) unix.Errno {
		if n > 5 {
			return unix.EBADF
		}
		return 0
	}}

	done := make(chan error, 1)
	go func() { done <- p.Run(t.Context()) }()
	<-p.Ready()
	if c, err := net.Dial("tcp", p.Addrs("front")[0].String()); err == nil {
		defer c.Close()
	}

	select {
	case err := <-done:
		if !errors.Is(err, unix.EBADF) {
			t.Errorf("run: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run goes on without its loop")
	}
}

// TestAttack20SlowGreetings: greetings that come byte by byte, garbage and half
// greetings cost what a session costs and hold nobody up; when their sender
// goes nothing is left.
func TestAttack20SlowGreetings(t *testing.T) {
	m := newSalt(t)
	cfg := testConfig(Request)
	cfg.Backends = []Backend{m.backend("m")}
	p, addr := start(t, cfg)
	upPorts(t, p, 1)
	g := greeting()
	var cs []*net.TCPConn
	for range 300 {
		cs = append(cs, dial(t, addr))
	}

	for i := range 20 {
		for j, c := range cs {
			b := g[i : i+1]
			if j%3 == 0 {
				b = []byte{byte(j)}
			}
			c.Write(b)
		}
	}

	if err := asks(addr, 3); err != nil {
		t.Errorf("beside 300 slow greetings: %v", err)
	}

	if n := p.Status().Pending; n != 0 {
		t.Errorf("%d bytes held", n)
	}

	for i, c := range cs {
		if i%2 == 0 {
			reset(c)
		} else {
			c.Close()
		}
	}

	settles(t, p)
}
