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

// allowsMove reports whether a session that we end for this reason may go on at
// another backend.
func (e ending) allowsMove() bool { return e == endDown || e == endDrain || e == endRebalance }

// half is one direction of a session: up (0) from client to backend, down (1)
// the other way.
type half struct {
	store      *store // nil unless bytes wait here or move through a pipe
	bytes      uint64
	lastRead   int64 // clock of the last byte read
	stuckSince int64 // clock since when the destination takes nothing, 0 if it does
	tracker    tracker

	readable bool // the source may have something
	writable bool // the destination may take something
	rdhup    bool // the source has ended; read on until 0
	eof      bool // nothing more comes from the source
	shut     bool // the destination has been told, or does not care
	peeking  bool // bytes are left in the kernel until the destination takes them
	splicing bool
	refused  bool // the destination takes nothing any more, what it has said is still read
}

// store is what a half has only while it needs it: most sessions are idle, and
// there may be tens of thousands.
type store struct {
	pending []byte // read and not yet written
	pipe    *pipe
}

// hasWaiting says that bytes wait here for the destination.
func (h *half) hasWaiting() bool {
	return h.store != nil && (len(h.store.pending) > 0 || h.store.hasPiped())
}

func (t *store) hasPiped() bool { return t.pipe != nil && t.pipe.n > 0 }

// holdBytes keeps bytes until the destination takes them; they are the half's now.
func (l *loop) holdBytes(h *half, b []byte) {
	h.store = &store{pending: b}
	l.pendingBytes += int64(len(b))
}

// dropHeld gives up what the half holds.
func (l *loop) dropHeld(h *half) {
	h.splicing = false
	if h.store == nil {
		return
	}
	l.pendingBytes -= int64(len(h.store.pending))
	l.pipes.put(h.store.pipe)
	h.store = nil
}

// endpoint is an address and a port in little space.
type endpoint struct {
	ip   [16]byte
	port uint16
}

func packEndpoint(ap netip.AddrPort) endpoint { return endpoint{ap.Addr().As16(), ap.Port()} }

func (e endpoint) addr() netip.Addr { return netip.AddrFrom16(e.ip).Unmap() }

func (e endpoint) addrPort() netip.AddrPort { return netip.AddrPortFrom(e.addr(), e.port) }

// session is one proxied connection, owned by one loop: 256 bytes (a size
// class of the allocator), no goroutine, no buffer.
type session struct {
	frontend    *frontend
	member      *member // the backend, or the first dial
	altMember   *member // a hedged second dial
	proxyHeader *[]byte // PROXY header so far
	prelude     *prelude
	replay      *replay
	half        [2]half
	tried       uint64   // members dialled
	acceptedAt  int64    // clock when accepted
	connectedAt int64    // clock when connected
	client      endpoint // as told by a PROXY header, if there is one
	source      endpoint // who connected, or the client for whom a balancer did; the limits count it

	fd            [2]int32 // client, backend (-1)
	altFD         int32
	slot          int32
	gen           int32
	provenAt      int32 // second of the clock when a sealed answer was last noted, at least 1; 0 for none
	dialTag       int8  // of fd[1]; altFD has the other
	state         sessionState
	why           ending // who ended first
	ended         bool   // why is set
	broken        bool   // a side is gone: close when the other half is flushed
	keepaliveSet  bool   // keepalive is set on the backend side
	hedged        bool   // a second dial was made
	queued        bool
	counted       bool // among the sessions of its source
	moved         bool // given to another backend once
	endedByMaster bool // because the last one ended it
	localClient   bool // its client is on this machine
}

func (l *loop) insertSession(s *session) bool {
	if n := len(l.free); n > 0 {
		s.slot = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		s.slot = int32(len(l.slots))
		l.slots = append(l.slots, slot{})
	}

	sl := &l.slots[s.slot]
	sl.gen++
	sl.session, s.gen = s, sl.gen
	l.sessions.Add(1)

	if err := l.watchSocket(int(s.fd[0]), s.slot, tagClient, s.gen, edges); err != nil {
		l.closeSession(s, endLocal)
		return false
	}

	return true
}

const edges = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

func (l *loop) sessionEvent(s *session, side int, ev uint32) {
	const in = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	if side == tagClient {
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
				l.closeSession(s, endClientReset)
			}
		case stateOpen:
			l.pumpBoth(s)
		}

		return
	}

	if s.state == stateDialing {
		l.dialEvent(s, int8(side), ev)
		return
	}
	if s.state < stateGreeting || int8(side) != s.dialTag {
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
		l.exchangeGreeting(s)
		return
	}

	l.pumpBoth(s)
}

// pumpBoth pumps both directions for one turn.
func (l *loop) pumpBoth(s *session) {
	more := l.pumpFrom(s, 0)
	if s.state == stateOpen && l.pumpFrom(s, 1) {
		more = true
	}
	// A failure in one direction may have ended the other.
	if s.state == stateOpen && s.broken {
		more = l.pumpFrom(s, 0) || more
	}
	if s.state == stateOpen && more && !s.queued {
		s.queued = true
		l.ready = append(l.ready, s)
	}
}

// setEnding notes who ended the session; the first word stands.
func (s *session) setEnding(why ending) {
	if !s.ended {
		s.ended, s.why = true, why
	}
}

// outstanding says whether a request waits for its answer. ZMTP messages are
// counted where both directions are known, so that heartbeats do not matter;
// otherwise it is whether the client was the last to send.
func (s *session) outstanding() bool {
	up, down := &s.half[0], &s.half[1]
	if up.tracker.followsZMTP() && down.tracker.followsZMTP() {
		return up.tracker.messages != down.tracker.messages || up.tracker.marks.has(markMore) ||
			up.tracker.state != trackFlags
	}
	return up.bytes > 0 && up.lastRead >= down.lastRead
}

// holdsBytes says that bytes wait, here or in the kernel, for the destination.
func (h *half) holdsBytes() bool { return h.hasWaiting() || h.peeking || h.stuckSince != 0 }

// cuttable says whether the session may be cut without breaking anything: no
// byte is held here, no frame has begun and not ended, and nothing has been
// read for quiet. A stream that is not ZMTP must have been silent ten times as
// long, at least 10 s, because its boundaries are unknown.
func (s *session) cuttable(now, quiet int64) bool {
	for d := range s.half {
		if s.half[d].holdsBytes() {
			return false
		}
	}

	if s.frontend.mode != Publish && s.outstanding() {
		return false
	}

	down := &s.half[1]
	if !down.tracker.betweenMessages() {
		quiet = max(10*quiet, 10e9)
	}

	last := max(down.lastRead, s.connectedAt)
	if s.frontend.mode != Publish {
		last = max(last, s.half[0].lastRead)
	}

	return (down.tracker.betweenMessages() || !down.tracker.followsZMTP()) && now-last >= quiet
}

// hasUnread says that the client has sent something that has not been looked at:
// its next request, which a cut would lose.
func (s *session) hasUnread() bool {
	var b [1]byte
	_, e := linux{}.recv(int(s.fd[0]), b[:], unix.MSG_PEEK)
	return e != unix.EAGAIN
}

// closeSession frees everything a session holds.
func (l *loop) closeSession(s *session, why ending) {
	if s.state == stateClosed {
		return
	}

	was := s.state
	s.setEnding(why)
	if why >= endNoBackend {
		s.why = why // our own decision, whoever ended a stream before
	}

	s.state = stateClosed
	for d := range s.half {
		l.dropHeld(&s.half[d])
	}

	l.releaseReplay(s)
	l.dropPrelude(s)
	l.slots[s.slot].session = nil
	l.free = append(l.free, s.slot)
	l.sessions.Add(-1)

	if s.member != nil {
		s.member.sessionLeft(s.half[0].bytes, s.half[1].bytes)
	}

	if s.altMember != nil {
		s.altMember.sessionLeft(0, 0)
	}

	s.frontend.sessionClosed(s)
	l.proxy.sessionLog.sessionClosed(s, l, was)
	s.resetOnCut(s.why)

	// Last, so that whoever sees the connection end finds it counted.
	for _, fd := range [3]int32{s.fd[0], s.fd[1], s.altFD} {
		if fd >= 0 {
			closeSocket(int(fd))
		}
	}

	l.proxy.budget.giveBack(2)
	if s.hedged {
		l.proxy.budget.giveBack(1)
	}
}
