package lbproxy

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

type sessionState uint8

const (
	stateHeader   sessionState = iota // waits for a PROXY header
	stateDialing                      // no backend has answered yet
	stateGreeting                     // another backend has, see transfer.go
	stateOpen
	stateClosed
)

// ending says why a session ended; the words are part of the log and metrics.
type ending uint8

const (
	endClient ending = iota // the client ended its stream first
	endBackend
	endClientReset
	endBackendReset
	endNoBackend
	endConnectTimeout
	endHeader
	endHeaderTimeout
	endIdle
	endOutstanding
	endHalfClosed
	endStall
	endDown
	endDrain
	endCut
	endRebalance
	endStop
	endLocal // out of descriptors, memory, ports
	endHandshake
	endUnproven
	endSource
	endings
)

var endingNames = [endings]string{"client", "backend", "client-reset", "backend-reset", "no-backend", "connect-timeout",
	"bad-header", "header-timeout", "idle", "outstanding", "half-closed", "stall", "backend-down", "drain", "cut",
	"rebalance", "stop", "local-error", "handshake-timeout", "unproven", "source-limit"}

func (e ending) String() string { return endingNames[e] }

// moves reports whether a session that we end for this reason may go on at
// another backend.
func (e ending) moves() bool { return e == endDown || e == endDrain || e == endRebalance }

// half is one direction of a session: up (0) from client to backend, down (1)
// the other way.
type half struct {
	store *store // nil unless bytes wait here or move through a pipe
	bytes uint64
	last  int64 // clock of the last byte read
	stuck int64 // clock since when the destination takes nothing, 0 if it does
	track tracker

	readable bool // the source may have something
	writable bool // the destination may take something
	rdhup    bool // the source has ended; read on until 0
	eof      bool // nothing more comes from the source
	shut     bool // the destination has been told, or does not care
	slow     bool // bytes are left in the kernel until the destination takes them
	splicing bool
	gone     bool // the destination takes nothing any more, what it has said is still read
}

// store is what a half has only while it needs it: most sessions are idle, and
// there may be tens of thousands.
type store struct {
	pend []byte // read and not yet written
	pipe *pipe
}

// waiting says that bytes wait here for the destination.
func (h *half) waiting() bool {
	return h.store != nil && (len(h.store.pend) > 0 || h.store.piped())
}

func (t *store) piped() bool { return t.pipe != nil && t.pipe.n > 0 }

// hold keeps bytes until the destination takes them; they are the half's now.
func (l *loop) hold(h *half, b []byte) {
	h.store = &store{pend: b}
	l.pending += int64(len(b))
}

// drop gives up what the half holds.
func (l *loop) drop(h *half) {
	h.splicing = false
	if h.store == nil {
		return
	}
	l.pending -= int64(len(h.store.pend))
	l.pipes.put(h.store.pipe)
	h.store = nil
}

// endpoint is an address and a port in little space.
type endpoint struct {
	ip   [16]byte
	port uint16
}

func pack(ap netip.AddrPort) endpoint { return endpoint{ap.Addr().As16(), ap.Port()} }

func (e endpoint) addr() netip.Addr { return netip.AddrFrom16(e.ip).Unmap() }

func (e endpoint) addrPort() netip.AddrPort { return netip.AddrPortFrom(e.addr(), e.port) }

// session is one proxied connection, owned by one loop: 256 bytes (a size
// class of the allocator), no goroutine, no buffer.
type session struct {
	fe     *frontend
	m      *member // the backend, or the first dial
	alt    *member // a hedged second dial
	hdr    *[]byte // PROXY header so far
	pre    *prelude
	keep   *keep
	half   [2]half
	tried  uint64   // members dialled
	start  int64    // clock when accepted
	opened int64    // clock when connected
	client endpoint // as told by a PROXY header, if there is one
	peer   endpoint // who connected, or the client for whom a balancer did; the limits count it

	fd     [2]int32 // client, backend (-1)
	altFD  int32
	slot   int32
	gen    int32
	proof  int32 // second of the clock when a sealed answer was last noted, at least 1; 0 for none
	side   int8  // of fd[1]; altFD has the other
	state  sessionState
	why    ending // who ended first
	ended  bool   // why is set
	broken bool   // a side is gone: close when the other half is flushed
	tuned  bool   // keepalive is set on the backend side
	hedge  bool   // a second dial was made
	queued bool
	counts bool // among the sessions of its source
	moved  bool // given to another backend once
	fled   bool // because the last one ended it
	local  bool // its client is on this machine
}

func (l *loop) insert(s *session) bool {
	if n := len(l.free); n > 0 {
		s.slot = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		s.slot = int32(len(l.slots))
		l.slots = append(l.slots, slot{})
	}

	sl := &l.slots[s.slot]
	sl.gen++
	sl.s, s.gen = s, sl.gen
	l.sessions.Add(1)

	if err := l.watch(int(s.fd[0]), s.slot, sideClient, s.gen, edges); err != nil {
		l.close(s, endLocal)
		return false
	}

	return true
}

const edges = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

func (l *loop) sessionEvent(s *session, side int, ev uint32) {
	const in = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	if side == sideClient {
		up := &s.half[0]
		if ev&in != 0 {
			up.readable = true
			up.rdhup = up.rdhup || ev&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
		}

		if ev&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			s.half[1].writable = true
		}

		switch s.state {
		case stateHeader:
			l.readHeader(s)
		case stateDialing, stateGreeting:
			if ev&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
				l.close(s, endClientReset)
			}
		case stateOpen:
			l.move(s)
		}

		return
	}

	if s.state == stateDialing {
		l.dialEvent(s, int8(side), ev)
		return
	}
	if s.state < stateGreeting || int8(side) != s.side {
		return
	}

	down := &s.half[1]
	if ev&in != 0 {
		down.readable = true
		down.rdhup = down.rdhup || ev&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
	}

	if ev&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		s.half[0].writable = true
	}

	if s.state == stateGreeting {
		l.greet(s)
		return
	}

	l.move(s)
}

// move pumps both directions for one turn.
func (l *loop) move(s *session) {
	more := l.pump(s, 0)
	if s.state == stateOpen && l.pump(s, 1) {
		more = true
	}
	// A failure in one direction may have ended the other.
	if s.state == stateOpen && s.broken {
		more = l.pump(s, 0) || more
	}
	if s.state == stateOpen && more && !s.queued {
		s.queued = true
		l.ready = append(l.ready, s)
	}
}

// end notes who ended the session; the first word stands.
func (s *session) end(why ending) {
	if !s.ended {
		s.ended, s.why = true, why
	}
}

// outstanding says whether a request waits for its answer. ZMTP messages are
// counted where both directions are known, so that heartbeats do not matter;
// otherwise it is whether the client was the last to send.
func (s *session) outstanding() bool {
	up, down := &s.half[0], &s.half[1]
	if up.track.known() && down.track.known() {
		return up.track.msgs != down.track.msgs || up.track.marks.has(markMore) || up.track.state != trackFlags
	}
	return up.bytes > 0 && up.last >= down.last
}

// held says that bytes wait, here or in the kernel, for the destination.
func (h *half) held() bool { return h.waiting() || h.slow || h.stuck != 0 }

// still says whether the session may be cut without breaking anything: no
// byte is held here, no frame has begun and not ended, and nothing has been
// read for quiet. A stream that is not ZMTP must have been silent ten times as
// long, at least 10 s, because its boundaries are unknown.
func (s *session) still(now, quiet int64) bool {
	for d := range s.half {
		if s.half[d].held() {
			return false
		}
	}

	if s.fe.mode != Publish && s.outstanding() {
		return false
	}

	down := &s.half[1]
	if !down.track.between() {
		quiet = max(10*quiet, 10e9)
	}

	last := max(down.last, s.opened)
	if s.fe.mode != Publish {
		last = max(last, s.half[0].last)
	}

	return (down.track.between() || !down.track.known()) && now-last >= quiet
}

// unread says that the client has sent something that has not been looked at:
// its next request, which a cut would lose.
func (s *session) unread() bool {
	var b [1]byte
	_, e := linux{}.recv(int(s.fd[0]), b[:], unix.MSG_PEEK)
	return e != unix.EAGAIN
}

// close frees everything a session holds.
func (l *loop) close(s *session, why ending) {
	if s.state == stateClosed {
		return
	}

	was := s.state
	s.end(why)
	if why >= endNoBackend {
		s.why = why // our own decision, whoever ended a stream before
	}

	s.state = stateClosed
	for d := range s.half {
		l.drop(&s.half[d])
	}

	l.release(s)
	l.unpin(s)
	l.slots[s.slot].s = nil
	l.free = append(l.free, s.slot)
	l.sessions.Add(-1)

	if s.m != nil {
		s.m.left(s.half[0].bytes, s.half[1].bytes)
	}

	if s.alt != nil {
		s.alt.left(0, 0)
	}

	s.fe.closed(s)
	l.p.sessionLog.closed(s, l, was)
	s.tellCut(s.why)

	// Last, so that whoever sees the connection end finds it counted.
	for _, fd := range [3]int32{s.fd[0], s.fd[1], s.altFD} {
		if fd >= 0 {
			closeSocket(int(fd))
		}
	}

	l.p.budget.give(2)
	if s.hedge {
		l.p.budget.give(1)
	}
}
