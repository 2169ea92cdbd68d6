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
	bufSize   = 256 << 10 // size of the loop's one read buffer
	turnBytes = 1 << 20   // bytes moved in one direction before the loop serves the next session
)

// The two lowest bits of an event's data say which socket of a session it belongs to;
// the bits above them are the slot of the session.
const (
	tagClient  = 0
	tagDialA   = 1
	tagDialB   = 2
	tagSpecial = 3 // a descriptor of the loop itself, whose slot is one of the constants below
)

const (
	specialWake = 0
	specialTime = 1
	specialList = 2 // this and all higher slots: listeners
)

// otherDial returns the tag of a session's other dial.
func otherDial(tag int8) int8 { return tagDialA + tagDialB - tag }

// slot is one entry of the session table. When a new session reuses the entry, gen is incremented,
// so that late events of the earlier session are ignored.
type slot struct {
	session *session
	gen     int32
}

// timer is an entry of a timer queue of the loop. All entries of a queue have the same delay, so
// the queue is always in order.
type timer struct {
	at   int64
	slot int32
	gen  int32
}

// loop owns sessions and their descriptors. Only the loop's goroutine touches a field, unless its
// comment says otherwise.
type loop struct {
	proxy   *Proxy
	id      int
	kernel  kernel
	epoll   int
	gate    gate
	pace    pace
	wakeFD  int // wakes the loop (eventfd)
	timerFD int // fires for the next timer (timerfd)

	slots      []slot
	free       []int32
	ready      []*session // sessions with work left from an earlier turn
	spareReady []*session // the array that ready uses next
	listeners  []*listener
	buf        []byte
	events     []unix.EpollEvent
	pipes      pipePool
	now        int64 // Proxy.clock at the start of the present turn

	hedgeTimers, connectTimers []timer
	armedFor                   int64 // clock at which timerFD fires; 0: never
	nextSweep                  int64
	sweepCursor                int   // the slot at which the next sweep begins
	pendingBytes               int64 // number of bytes that all sessions of this loop hold
	preludes                   map[string]*prelude
	preludeBytes               int
	spareReplays               []*replay // replays that no session uses
	stopping                   bool

	sessions     atomic.Int64 // read by any goroutine, as are the next three fields
	lastHeard    atomic.Int64 // clock of the last byte or connection from another machine, 0 for none
	busyTime     atomic.Int64 // nanoseconds in which the loop was not parked
	pendingShown atomic.Int64

	mu     sync.Mutex
	inbox  []func() // filled by any goroutine
	ended  bool     // the inbox accepts no more functions
	wakeMu sync.RWMutex
}

func newLoop(p *Proxy, id int) (*loop, error) {
	l := &loop{
		proxy:    p,
		id:       id,
		kernel:   p.kernel,
		epoll:    -1,
		gate:     gate{fd: -1},
		wakeFD:   -1,
		timerFD:  -1,
		buf:      make([]byte, bufSize),
		preludes: map[string]*prelude{},
		events:   make([]unix.EpollEvent, 256),
	}

	fail := func(action string, err error) (*loop, error) {
		l.closeDescriptors()
		return nil, fmt.Errorf("%s: %w", action, err)
	}

	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fail("create epoll descriptor", err)
	}

	if l.gate, err = newGate(l.epoll); err != nil {
		return fail("prepare to park", err)
	}

	if l.wakeFD, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return fail("create event descriptor", err)
	}

	if l.timerFD, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fail("create timer descriptor", err)
	}

	if err = l.watchSocket(l.wakeFD, specialWake, tagSpecial, 0, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return fail("watch event descriptor", err)
	}

	if err = l.watchSocket(l.timerFD, specialTime, tagSpecial, 0, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return fail("watch timer descriptor", err)
	}

	return l, nil
}

// run handles events until stopping is set. [gate] describes how the loop sleeps. run does not
// block in epoll_wait: the Go runtime would reassign the processor each time, which costs more than
// the work itself.
func (l *loop) run() error {
	l.gate.file = os.NewFile(uintptr(l.gate.fd), "gate")
	defer l.closeDescriptors()
	rc, err := l.gate.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("park: %w", err)
	}

	l.now = l.proxy.clock()
	l.nextSweep = l.now + int64(l.proxy.tick)
	l.armTimer()
	var fault error
	err = rc.Read(func(uintptr) bool {
		for again := true; again && fault == nil && !l.stopping; {
			if _, fault = l.gate.setOpen(l.epoll, false); fault == nil {
				fault = l.handleEvents()
			}
			again = false
			if fault == nil && !l.stopping {
				again, fault = l.gate.setOpen(l.epoll, true)
			}
		}

		return l.stopping || fault != nil
	})

	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()

	l.drainInbox() // run the last functions: their callers wait, and other loops may have handed over sessions
	for i := range l.slots {
		if s := l.slots[i].session; s != nil {
			l.closeSession(s, endStop)
		}
	}

	return errors.Join(fault, err)
}

// handleEvents runs turns of the loop until no event has come for gate.linger.
func (l *loop) handleEvents() error {
	ev := l.events
	began := l.proxy.clock()
	l.now = began
	wait := time.Duration(0) // how long the next epoll_wait may take
	for turns := 1; !l.stopping; turns++ {
		n, e := l.kernel.epollWait(l.epoll, ev, wait)
		if wait > 0 {
			l.now = l.proxy.clock()
			l.pace.noteWait(time.Duration(l.now-began), n)
			began = l.now
		}

		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			return fmt.Errorf("wait for events: %w", e)
		}

		for i := range ev[:n] {
			l.dispatch(&ev[i])
		}

		idle := n == 0 && len(l.ready) == 0
		if len(l.ready) > 0 {
			l.resumeReady()
		}

		if l.stopping || (idle && (wait > 0 || l.gate.linger == 0)) {
			break
		}

		l.now = l.proxy.clock()
		wait = 0
		if n < len(ev) && len(l.ready) == 0 && l.gate.linger > 0 {
			wait = l.gate.linger
			l.notePause(began)
			began = l.now
			if n > 0 && l.pace.shouldGather() {
				// The kernel adds about 50 microseconds to the pause.
				l.kernel.pause(100 * time.Microsecond)
			}
		} else if turns%64 == 0 {
			runtime.Gosched()
		}
	}

	l.notePause(began)
	return nil
}

// notePause publishes the loop's busy time and pending bytes for other goroutines, before a pause.
// began is the clock at the end of the last pause.
func (l *loop) notePause(began int64) {
	l.busyTime.Add(l.now - began)
	if l.pendingShown.Load() != l.pendingBytes {
		l.pendingShown.Store(l.pendingBytes)
	}
}

// dispatch handles one event.
func (l *loop) dispatch(ev *unix.EpollEvent) {
	at, tag := ev.Fd>>2, ev.Fd&3
	if tag == tagSpecial {
		switch at {
		case specialWake:
			l.drainCounter(l.wakeFD)
			l.drainInbox()
		case specialTime:
			l.drainCounter(l.timerFD)
			l.armedFor = 0
			l.runTimers()
		default:
			if i := int(at) - specialList; i < len(l.listeners) && l.listeners[i] != nil {
				l.acceptFrom(l.listeners[i])
			}
		}

		return
	}

	if sl := &l.slots[at]; sl.session != nil && sl.gen == ev.Pad {
		l.sessionEvent(sl.session, int(tag), ev.Events)
	}
}

// resumeReady pumps each session with remaining work once more.
func (l *loop) resumeReady() {
	now := l.ready
	l.ready = l.spareReady
	for _, s := range now {
		s.queued = false
		if s.state == stateOpen {
			l.pumpBoth(s)
		} else {
			l.resumeTransfer(s)
		}
	}
	clear(now)
	l.spareReady = now[:0]
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

// runLater queues f for the loop's goroutine and reports whether f will run. To bound the inbox, a
// caller must wait for f, or call runLater only once per tick.
func (l *loop) runLater(f func()) bool {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return false
	}
	l.inbox = append(l.inbox, f)
	first := len(l.inbox) == 1
	l.mu.Unlock()
	if first {
		l.wakeUp()
	}
	return true
}

// runAndWait runs f on the loop's goroutine and waits for its end. It returns false if the loop has
// ended. A loop must not call it.
func (l *loop) runAndWait(f func()) bool {
	done := make(chan struct{})
	if !l.runLater(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

// wakeUp wakes the loop so that it handles its inbox. Any goroutine may call it.
func (l *loop) wakeUp() {
	l.wakeMu.RLock() // keeps wakeFD open meanwhile
	defer l.wakeMu.RUnlock()
	if l.wakeFD < 0 {
		return
	}
	one := [8]byte{1}
	for {
		_, err := unix.Write(l.wakeFD, one[:])
		if err != unix.EINTR {
			return // EAGAIN: a wake-up is pending already
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

// watchSocket registers a descriptor with epoll. Its events carry the index slot, tag and gen.
func (l *loop) watchSocket(fd int, slot, tag, gen int32, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: slot<<2 | tag, Pad: gen}
	// EPOLL_CTL_ADD never blocks, so a raw system call is safe.
	_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(l.epoll), unix.EPOLL_CTL_ADD, uintptr(fd),
		uintptr(unsafe.Pointer(&ev)), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// armTimer sets the timerfd to the earliest deadline of the loop.
func (l *loop) armTimer() {
	next := l.nextSweep
	if len(l.hedgeTimers) > 0 {
		next = min(next, l.hedgeTimers[0].at)
	}

	if len(l.connectTimers) > 0 {
		next = min(next, l.connectTimers[0].at)
	}

	if l.armedFor != 0 && l.armedFor <= next {
		return
	}

	l.armedFor = next
	wait := max(next-l.proxy.clock(), 1)
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(wait)}
	if err := unix.TimerfdSettime(l.timerFD, 0, &spec, nil); err != nil {
		l.proxy.log.Error("set timer", "error", err)
	}
}

// runTimers runs all due entries of the timer queues, and arms the timer for the next one.
func (l *loop) runTimers() {
	l.now = l.proxy.clock()
	l.runDue(&l.hedgeTimers, l.hedgeDial)
	l.runDue(&l.connectTimers, l.expireConnect)
	if l.now >= l.nextSweep {
		l.nextSweep = l.now + int64(l.proxy.tick)
		l.sweepSessions()
	}
	l.armTimer()
}

// runDue removes the due entries from the front of a queue and calls f for their sessions. It drops
// entries that their session no longer needs. f may append to the queue.
func (l *loop) runDue(q *[]timer, f func(*session)) {
	for len(*q) > 0 {
		t := (*q)[0]
		s := l.slots[t.slot].session
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

// closeDescriptors closes the loop's own descriptors.
func (l *loop) closeDescriptors() {
	l.wakeMu.Lock()
	defer l.wakeMu.Unlock()
	for _, fd := range []*int{&l.wakeFD, &l.timerFD} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}

	l.gate.close()
	if l.epoll >= 0 {
		unix.Close(l.epoll)
	}

	l.epoll = -1
	l.pipes.close()
}

// clock returns the nanoseconds since the proxy was created.
func (p *Proxy) clock() int64 { return int64(time.Since(p.base)) }
