package lbproxy

import (
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lingerFor is how long a loop waits for more events in the kernel before it parks. It must stay
// well under the 10 ms after which the runtime preempts a goroutine.
const lingerFor = 4 * time.Millisecond

// gate controls how a loop sleeps: in two ways, for two kinds of load.
//
// A loop without work is parked in the runtime's poller, like any goroutine that waits for a
// connection. That costs nothing while no event comes. But each wake-up goes through the runtime's
// scheduler and three calls of epoll, which together cost as much as moving a small message. So
// after work a loop first lingers: it waits in epoll for a few milliseconds, in a raw system call.
// The runtime does not notice and leaves the processor to the loop. A garbage collection has to
// wait for the loop, so the call must be short. (The runtime also sends the thread a signal, which
// ends the call earlier.)
//
// While a loop lingers, its events must not wake another goroutine. So the runtime does not watch the
// loop's epoll descriptor. It watches a second one, the gate, which contains the loop's descriptor only
// while the loop is parked.
type gate struct {
	fd     int // the gate's epoll descriptor
	file   *os.File
	open   bool
	linger time.Duration // 0 means that the loop parks at once
}

// newGate returns a shut gate for the epoll descriptor ep.
func newGate(ep int) (gate, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return gate{fd: -1}, fmt.Errorf("create gate: %w", err)
	}
	if err = unix.SetNonblock(fd, true); err == nil {
		err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, ep, &unix.EpollEvent{})
	}
	if err != nil {
		unix.Close(fd)
		return gate{fd: -1}, fmt.Errorf("prepare gate: %w", err)
	}
	return gate{fd: fd}, nil
}

// setOpen opens the gate before the loop parks, or shuts it afterwards. If again is true, the loop
// must not park, because events came while the gate was shut. The kernel does not report such
// events if the gate still lists the loop's descriptor as ready (ep_modify wakes nobody for an
// entry in the ready list), so setOpen polls for them itself.
func (g *gate) setOpen(ep int, open bool) (again bool, err error) {
	if g.open != open {
		if err := g.switchTo(ep, open); err != nil {
			return false, err
		}
	}
	if !open {
		return false, nil
	}
	fds := [1]unix.PollFd{{Fd: int32(ep), Events: unix.POLLIN}}
	n, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 1,
		uintptr(unsafe.Pointer(&unix.Timespec{})), 0, 0, 0)
	return (e == 0 && n > 0) || e == unix.EINTR, nil
}

func (g *gate) switchTo(ep int, open bool) error {
	ev := unix.EpollEvent{}
	if open {
		ev.Events = unix.EPOLLIN
	}
	_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(g.fd), unix.EPOLL_CTL_MOD, uintptr(ep),
		uintptr(unsafe.Pointer(&ev)), 0, 0)
	if e != 0 {
		return fmt.Errorf("switch gate: %w", e)
	}
	g.open = open
	return nil
}

func (g *gate) close() {
	if g.file != nil {
		g.file.Close()
	} else if g.fd >= 0 {
		unix.Close(g.fd)
	}
	g.fd = -1
}

// mayLinger reports whether n loops may each occupy a processor while they wait. They may if one
// processor remains for other work.
func mayLinger(n int) bool { return runtime.GOMAXPROCS(0) > n }

const (
	gatherAfter = 16  // number of waits in a row that ended at once, after which the loop gathers messages
	gatherLeast = 4   // least number of events that made a pause worthwhile
	gatherRest  = 256 // number of waits before gathering is tried again
)

// pace decides when a loop waits for more messages before it handles those that have arrived. A
// broadcast reaches the proxy as thousands of small messages, one after the other: a loop that
// handled each at once would sleep and wake up for each. A lone client that sends its next request
// after each answer looks the same at first, but no messages gather there. If few messages gather,
// pace stops gathering for a while.
type pace struct {
	quick  int // number of waits in a row that ended at once
	rest   int // number of waits before gathering may be tried again
	active bool
	paused bool // the loop pauses before the next wait
}

// shouldGather reports whether to pause before the next wait.
func (p *pace) shouldGather() bool {
	p.paused = p.active
	return p.active
}

// noteWait records how long a wait was, and how many events it brought.
func (p *pace) noteWait(d time.Duration, n int) {
	switch {
	case p.paused:
		p.paused = false
		if n < gatherLeast {
			p.active = false
			p.quick = 0
			p.rest = gatherRest
		}
	case p.rest > 0:
		p.rest--
	case n > 0 && d < 50*time.Microsecond:
		p.quick++
		if p.quick >= gatherAfter {
			p.active = true
		}
	default:
		p.quick = 0
	}
}
