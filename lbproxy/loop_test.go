package lbproxy

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"saltern/internal/localsock"

	"golang.org/x/sys/unix"
)

// A session that another loop gives to one that is just ending is closed.
func TestLoopThatEndsClosesWhatItIsGiven(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	cfg := testConfig(Request)
	to := ln.Addr().(*net.TCPAddr)
	cfg.Backends = []Backend{{Name: "b", Address: "127.0.0.1", PublishPort: to.Port, RequestPort: to.Port}}
	p, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}

	l, err := newLoop(p, 0)
	if err != nil {
		t.Fatal(err)
	}

	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])

	p.budget.setSize(10)
	p.budget.reserve(2)
	fe := p.frontends[0]
	fe.sessions.Add(1)
	l.stopping = true // it has done its last turn
	l.runLater(func() { l.beginSession(&session{frontend: fe, fd: [2]int32{int32(pair[0]), -1}, altFD: -1}) })

	if err := l.run(); err != nil {
		t.Fatal(err)
	}

	if n := fe.sessions.Load() + l.sessions.Load() +
		fe.currentMembers()[0].sessions.Load(); n != 0 || p.budget.left.Load() != 10 {
		t.Errorf("%d sessions are left, %d of 10 descriptors are free", n, p.budget.left.Load())
	}

	if n, err := unix.Read(pair[1], make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the client is not told: %d %v", n, err)
	}
}

// Who opens connections to the metrics takes no descriptors from sessions, and
// others are answered again when they go.
func TestMetricsConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	b := localsock.Limit(ln, maxAdminConns, nil)
	defer b.Close()
	accepted := make(chan net.Conn, 2*maxAdminConns)
	go func() {
		defer close(accepted)
		for {
			c, err := b.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()

	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}

	var held []net.Conn
	for range maxAdminConns {
		dial()
		held = append(held, <-accepted)
	}

	over := dial()
	_ = over.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := over.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one too many: %d %v", n, err)
	}

	held[0].Close()
	held[0].Close() // counts once
	dial()
	again := <-accepted
	defer again.Close()

	for _, c := range held[1:] {
		c.Close()
	}
}
