package lbproxy

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPace: a burst of quick waits turns gathering on, a pause that gathered
// too little turns it off for a while, a slow wait begins the count anew.
func TestPace(t *testing.T) {
	type step struct {
		d    time.Duration
		n    int
		many int
	}

	quick, slow := 10*time.Microsecond, time.Millisecond
	for _, c := range []struct {
		name  string
		steps []step
		want  bool
	}{
		{"new", nil, false},
		{"quick", []step{{quick, 1, gatherAfter}}, true},
		{"one too few", []step{{quick, 1, gatherAfter - 1}}, false},
		{"slow between", []step{{quick, 1, gatherAfter - 1}, {slow, 1, 1}, {quick, 1, gatherAfter - 1}}, false},
		{"ended by nothing", []step{{quick, 0, gatherAfter}}, false},
		{"gathers", []step{{quick, 1, gatherAfter}, {quick, gatherLeast, 1000}}, true},
		{"lone client", []step{{quick, 1, gatherAfter}, {quick, gatherLeast - 1, 1}}, false},
		{"rests", []step{{quick, 1, gatherAfter}, {quick, 1, 1 + gatherRest + gatherAfter - 1}}, false},
		{"tries again", []step{{quick, 1, gatherAfter}, {quick, 1, 1 + gatherRest + gatherAfter}}, true},
	} {
		var p pace
		for _, s := range c.steps {
			for range s.many {
				p.shouldGather()
				p.noteWait(s.d, s.n)
			}
		}

		if got := p.shouldGather(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestGate: while shut it hides what the loop's epoll descriptor has, opening
// shows what came meanwhile.
func TestGate(t *testing.T) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ep)

	ev, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ev)

	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, ev,
		&unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}); err != nil {
		t.Fatal(err)
	}

	g, err := newGate(ep)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()

	ring := func() {
		if _, err := unix.Write(ev, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
	}

	shows := func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(g.fd), Events: unix.POLLIN}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}

	set := func(open bool) {
		if _, err := g.setOpen(ep, open); err != nil {
			t.Fatal(err)
		}
	}

	ring()
	if shows() {
		t.Error("shut from the start, and shows an event")
	}

	set(true)
	if !shows() {
		t.Error("opened, and hides what came before")
	}

	set(false)
	if shows() {
		t.Error("shut, and shows an event")
	}

	if n, e := (linux{}).epollWait(ep, make([]unix.EpollEvent, 4), 0); n != 1 || e != 0 {
		t.Errorf("the loop's own wait: %d, %v", n, e)
	}

	set(true)
	if shows() {
		t.Error("open, and shows an event that was taken")
	}

	ring()
	if !shows() {
		t.Error("open, and hides a new event")
	}
}

// TestGateMissesNothing: an event that comes while the gate is shut, after one
// that came while it was open, wakes nobody who watches the gate by edges, as
// Go's poller does. Opening must tell of it.
func TestGateMissesNothing(t *testing.T) {
	fd := func(fd int, err error) int {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}

	ep := fd(unix.EpollCreate1(unix.EPOLL_CLOEXEC))
	poller := fd(unix.EpollCreate1(unix.EPOLL_CLOEXEC))
	ev := fd(unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC))
	g, err := newGate(ep)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(g.close)
	for _, w := range []struct {
		in, fd int
		events uint32
	}{{ep, ev, unix.EPOLLIN}, {poller, g.fd, unix.EPOLLIN | unix.EPOLLET}} {
		if err := unix.EpollCtl(w.in, unix.EPOLL_CTL_ADD, w.fd, &unix.EpollEvent{Events: w.events}); err != nil {
			t.Fatal(err)
		}
	}

	ring := func() {
		if _, err := unix.Write(ev, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
	}

	ready := func(fd int) bool {
		n, e := (linux{}).epollWait(fd, make([]unix.EpollEvent, 4), 0)
		return e == 0 && n > 0
	}

	set := func(open bool) bool {
		again, err := g.setOpen(ep, open)
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	if set(true) {
		t.Fatal("opening tells of an event before there was one")
	}

	ring()
	if !ready(poller) {
		t.Fatal("the open gate does not wake the poller")
	}

	set(false)
	if _, err := unix.Read(ev, make([]byte, 8)); err != nil || ready(ep) {
		t.Fatal("the event was not taken", err)
	}

	ring() // after the loop has looked for the last time
	if again := set(true); !again && !ready(poller) {
		t.Fatal("the event is lost: opening does not tell, and the poller sleeps")
	}
}

// TestLingerLeavesRoom: collections and other goroutines go on while a loop
// waits in the kernel again and again.
func TestLingerLeavesRoom(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	b := newFake(t, "127.0.0.1:0", echo)
	_, addr := start(t, testConfig(Request, b))
	c := dial(t, addr)
	ctx, cancel := context.WithCancel(t.Context())
	var answers atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 1); ctx.Err() == nil; answers.Add(1) { // the loop never parks meanwhile
			if _, err := io.WriteString(c, "x"); err != nil {
				break
			}
			if _, err := io.ReadFull(c, buf); err != nil {
				break
			}
		}
	}()

	began := time.Now()
	for n := 0; n < 50 || answers.Load() < 100; n++ {
		runtime.GC()
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%d collections and %d answers in %v", n, answers.Load(), time.Since(began))
		}
	}

	cancel()
	<-done
}
