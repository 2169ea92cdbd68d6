package lbproxy

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	bufSize     = 256 << 10 // the loop's one read buffer
	turnBytes   = 1 << 20   // moved for one direction before the next session has its turn
	sideClient  = 0
	sideDialA   = 1
	sideDialB   = 2
	sideSpecial = 3 // the slot number is one of the below
	specialWake = 0
	specialTime = 1
	specialList = 2 // and above: listeners
)

// slot is one place of the session table; gen tells an event for a session
// that has gone from one for the session now in its place.
type slot struct {
	s   *session
	gen int32
}

// timer is an entry of one of the loop's queues, all entries of a queue
// having the same delay, so that a queue is in order by construction.
type timer struct {
	at   int64
	slot int32
	gen  int32
}

// loop owns sessions and their descriptors. Everything without a comment is
// touched by its goroutine only.
type loop struct {
	p    *Proxy
	id   int
	k    kernel
	ep   int
	gate gate
	pace pace
	wake int // eventfd
	tfd  int // timerfd

	slots  []slot
	free   []int32
	ready  []*session // have work left from an earlier turn
	spare  []*session // room for the next list of them
	lns    []*listener
	buf    []byte
	events []unix.EpollEvent
	pipes  pipePool
	now    int64 // Proxy.clock at the start of the turn

	hedges, limits []timer
	armed          int64 // when the timerfd fires, 0 never
	nextSweep      int64
	cursor         int   // where the sweep goes on
	pending        int64 // bytes in halves' pend
	preludes       map[string]*prelude
	preludeBytes   int
	keeps          []*keep // spare ones
	stop           bool

	sessions  atomic.Int64 // for other goroutines
	lastHeard atomic.Int64 // clock of the last byte or connection from another machine; 0: none
	busy      atomic.Int64 // nanoseconds not parked
	pendNow   atomic.Int64

	mu    sync.Mutex
	inbox []func() // by any goroutine
	ended bool     // nothing more is taken
	fdmu  sync.RWMutex
}

func newLoop(p *Proxy, id int) (*loop, error) {
	l := &loop{
		p:        p,
		id:       id,
		k:        p.kernel,
		ep:       -1,
		gate:     gate{fd: -1},
		wake:     -1,
		tfd:      -1,
		buf:      make([]byte, bufSize),
		preludes: map[string]*prelude{},
		events:   make([]unix.EpollEvent, 256),
	}

	fail := func(what string, err error) (*loop, error) {
		l.closeOwn()
		return nil, fmt.Errorf("%s: %w", what, err)
	}

	var err error
	if l.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fail("create epoll descriptor", err)
	}

	if l.gate, err = newGate(l.ep); err != nil {
		return fail("prepare to park", err)
	}

	if l.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return fail("create event descriptor", err)
	}

	if l.tfd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fail("create timer descriptor", err)
	}

	if err = l.watch(l.wake, specialWake, sideSpecial, 0, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return fail("watch event descriptor", err)
	}

	if err = l.watch(l.tfd, specialTime, sideSpecial, 0, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return fail("watch timer descriptor", err)
	}

	return l, nil
}

// run handles events until stop. See [gate] for how it sleeps; a blocking
// epoll_wait makes the runtime take the processor away each time, which costs
// more than the work itself.
func (l *loop) run() error {
	l.gate.file = os.NewFile(uintptr(l.gate.fd), "gate")
	defer l.closeOwn()
	rc, err := l.gate.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("park: %w", err)
	}

	l.now = l.p.clock()
	l.nextSweep = l.now + int64(l.p.tick)
	l.arm()
	var fault error
	err = rc.Read(func(uintptr) bool {
		for again := true; again && fault == nil && !l.stop; {
			if _, fault = l.gate.set(l.ep, false); fault == nil {
				fault = l.work()
			}
			again = false
			if fault == nil && !l.stop {
				again, fault = l.gate.set(l.ep, true)
			}
		}

		return l.stop || fault != nil
	})

	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()

	l.drainInbox() // callers may wait, and other loops give sessions
	for i := range l.slots {
		if s := l.slots[i].s; s != nil {
			l.close(s, endStop)
		}
	}

	return errors.Join(fault, err)
}

// work runs turns until nothing has come for a while.
func (l *loop) work() error {
	ev := l.events
	began := l.p.clock()
	l.now = began
	wait := time.Duration(0) // of the next look for events
	for turns := 1; !l.stop; turns++ {
		n, e := l.k.epollWait(l.ep, ev, wait)
		if wait > 0 {
			l.now = l.p.clock()
			l.pace.waited(time.Duration(l.now-began), n)
			began = l.now
		}

		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			return fmt.Errorf("wait for events: %w", e)
		}

		for i := range ev[:n] {
			l.event(&ev[i])
		}

		idle := n == 0 && len(l.ready) == 0
		if len(l.ready) > 0 {
			l.again()
		}

		if l.stop || (idle && (wait > 0 || l.gate.linger == 0)) {
			break
		}

		l.now = l.p.clock()
		wait = 0
		if n < len(ev) && len(l.ready) == 0 && l.gate.linger > 0 {
			wait = l.gate.linger
			l.rested(began)
			began = l.now
			if n > 0 && l.pace.gather() {
				l.k.pause(gatherFor)
			}
		} else if turns%64 == 0 {
			runtime.Gosched()
		}
	}

	l.rested(began)
	return nil
}

// rested notes what other goroutines want to know, before a pause.
func (l *loop) rested(began int64) {
	l.busy.Add(l.now - began)
	if l.pendNow.Load() != l.pending {
		l.pendNow.Store(l.pending)
	}
}

func (l *loop) event(ev *unix.EpollEvent) {
	at, side := ev.Fd>>2, ev.Fd&3
	if side == sideSpecial {
		switch at {
		case specialWake:
			l.drainCounter(l.wake)
			l.drainInbox()
		case specialTime:
			l.drainCounter(l.tfd)
			l.armed = 0
			l.timers()
		default:
			if i := int(at) - specialList; i < len(l.lns) && l.lns[i] != nil {
				l.acceptFrom(l.lns[i])
			}
		}

		return
	}

	if sl := &l.slots[at]; sl.s != nil && sl.gen == ev.Pad {
		l.sessionEvent(sl.s, int(side), ev.Events)
	}
}

// again gives sessions with work left one more turn.
func (l *loop) again() {
	now := l.ready
	l.ready = l.spare
	for _, s := range now {
		s.queued = false
		if s.state == stateOpen {
			l.move(s)
		} else {
			l.resume(s)
		}
	}
	clear(now)
	l.spare = now[:0]
}

func (l *loop) drainCounter(fd int) {
	var b [8]byte
	for {
		_, err := unix.Read(fd, b[:])
		if err != unix.EINTR {
			return
		}
	}
}

// post hands f to the loop's goroutine; it reports whether f will be run.
// Callers either wait for f or come once per tick, which bounds the mailbox.
func (l *loop) post(f func()) bool {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return false
	}
	l.inbox = append(l.inbox, f)
	first := len(l.inbox) == 1
	l.mu.Unlock()
	if first {
		l.ring()
	}
	return true
}

// call is post and wait; it must not be used by a loop.
func (l *loop) call(f func()) bool {
	done := make(chan struct{})
	if !l.post(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

func (l *loop) ring() {
	l.fdmu.RLock() // so that wake is not closed meanwhile
	defer l.fdmu.RUnlock()
	if l.wake < 0 {
		return
	}
	one := [8]byte{1}
	for {
		_, err := unix.Write(l.wake, one[:])
		if err != unix.EINTR {
			return // EAGAIN: it is ringing already
		}
	}
}

func (l *loop) drainInbox() {
	l.mu.Lock()
	in := l.inbox
	l.inbox = nil
	l.mu.Unlock()
	for _, f := range in {
		f()
	}
}

func (l *loop) watch(fd int, at, side int32, gen int32, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: at<<2 | side, Pad: gen}
	// Adding never blocks, so the raw form is right here as well.
	_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(l.ep), unix.EPOLL_CTL_ADD, uintptr(fd),
		uintptr(unsafe.Pointer(&ev)), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// arm sets the timerfd to the next thing to do.
func (l *loop) arm() {
	next := l.nextSweep
	if len(l.hedges) > 0 {
		next = min(next, l.hedges[0].at)
	}

	if len(l.limits) > 0 {
		next = min(next, l.limits[0].at)
	}

	if l.armed != 0 && l.armed <= next {
		return
	}

	l.armed = next
	wait := max(next-l.p.clock(), 1)
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(wait)}
	if err := unix.TimerfdSettime(l.tfd, 0, &spec, nil); err != nil {
		l.p.log.Error("set timer", "error", err)
	}
}

func (l *loop) timers() {
	l.now = l.p.clock()
	l.due(&l.hedges, l.hedge)
	l.due(&l.limits, l.limit)
	if l.now >= l.nextSweep {
		l.nextSweep = l.now + int64(l.p.tick)
		l.sweep()
	}
	l.arm()
}

// due takes what is due, or no longer needed, from the front of a queue. f may
// append to the queue.
func (l *loop) due(q *[]timer, f func(*session)) {
	for len(*q) > 0 {
		t := (*q)[0]
		s := l.slots[t.slot].s
		live := s != nil && l.slots[t.slot].gen == t.gen && s.state < stateOpen
		if live && t.at > l.now {
			return
		}
		*q = (*q)[1:]
		if live {
			f(s)
		}
	}
}

func (l *loop) closeOwn() {
	l.fdmu.Lock()
	defer l.fdmu.Unlock()
	for _, fd := range []*int{&l.wake, &l.tfd} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}

	l.gate.close()
	if l.ep >= 0 {
		unix.Close(l.ep)
	}

	l.ep = -1
	l.pipes.close()
}

func (p *Proxy) clock() int64 { return int64(time.Since(p.base)) }
