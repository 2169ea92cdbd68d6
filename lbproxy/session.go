package lbproxy

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

type sessionState uint8

const (
	stateHeader  sessionState = iota // waits for the client's PROXY header
	stateDialing                     // no backend has answered yet
	// a moved session sends the client's prelude and request to the new backend, see transfer.go
	stateGreeting
	stateOpen
	stateClosed
)

// ending is the reason why a session ended. The log and the metrics show its text.
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
	endLocal // this machine lacks descriptors, memory or ports
	endHandshake
	endUnproven
	endSource
	endings
)

var endingNames = [endings]string{"client", "backend", "client-reset", "backend-reset", "no-backend", "connect-timeout",
	"bad-header", "header-timeout", "idle", "outstanding", "half-closed", "stall", "backend-down", "drain", "cut",
	"rebalance", "stop", "local-error", "handshake-timeout", "unproven", "source-limit"}

func (e ending) String() string { return endingNames[e] }

// allowsMove reports whether a session that the proxy ends for this reason may continue at another backend.
func (e ending) allowsMove() bool { return e == endDown || e == endDrain || e == endRebalance }

// side is one of the two peers of a session.
type side uint8

const (
	sideClient side = iota
	sideBackend
)

func (from side) other() side { return 1 - from }

// half is a direction of a session. A session indexes its halves by the side from which the bytes
// come: half[sideClient] carries them to the backend, half[sideBackend] to the client.
type half struct {
	store      *store // nil unless bytes are held here or move through a pipe
	bytes      uint64
	lastRead   int64 // clock of the last byte read
	stuckSince int64 // clock since when the destination has accepted nothing, 0 while it accepts bytes
	tracker    tracker

	readable bool // the source may have bytes
	writable bool // the destination may accept bytes
	rdhup    bool // the source has ended its stream; its last bytes are still to be read
	eof      bool // the source has no more bytes
	shut     bool // the end of the stream was forwarded, or the destination is closed
	peeking  bool // bytes stay in the kernel until the destination accepts them
	splicing bool
	refused  bool // the destination accepts no more bytes, but what it has sent is still read
}

// store is the part of a half that exists only while it is needed: most sessions are idle, and
// there may be tens of thousands.
type store struct {
	pending []byte // read, not yet written
	pipe    *pipe
}

// hasWaiting reports whether bytes that were read wait for the destination.
func (h *half) hasWaiting() bool {
	return h.store != nil && (len(h.store.pending) > 0 || h.store.hasPiped())
}

func (t *store) hasPiped() bool { return t.pipe != nil && t.pipe.n > 0 }

// holdBytes stores bytes until the destination accepts them. The half owns b from now on.
func (l *loop) holdBytes(h *half, b []byte) {
	h.store = &store{pending: b}
	l.pendingBytes += int64(len(b))
}

// dropHeld discards the bytes that the half holds.
func (l *loop) dropHeld(h *half) {
	h.splicing = false
	if h.store == nil {
		return
	}
	l.pendingBytes -= int64(len(h.store.pending))
	l.pipes.put(h.store.pipe)
	h.store = nil
}

// endpoint is an address with a port. It contains no pointers.
type endpoint struct {
	ip   [16]byte
	port uint16
}

func packEndpoint(ap netip.AddrPort) endpoint { return endpoint{ap.Addr().As16(), ap.Port()} }

func (e endpoint) addr() netip.Addr { return netip.AddrFrom16(e.ip).Unmap() }

func (e endpoint) addrPort() netip.AddrPort { return netip.AddrPortFrom(e.addr(), e.port) }

// session is one proxied connection, owned by one loop. It has 256 bytes (a size class of the
// allocator), no goroutine and no buffer.
type session struct {
	frontend    *frontend
	member      *member // the backend, or the first dial; may be nil
	altMember   *member // a hedged second dial; may be nil
	proxyHeader *[]byte // the bytes received so far of the client's PROXY header; nil when none is expected
	prelude     *prelude
	replay      *replay
	half        [2]half
	tried       uint64   // set of the indices of members that were dialled
	acceptedAt  int64    // clock when the client was accepted
	connectedAt int64    // clock when the backend was connected
	client      endpoint // the client in the PROXY header, or the peer of the connection
	source      endpoint // the address that the limits count: the peer, or the client that a trusted balancer names

	fd            [2]int32 // sockets by side; -1 while there is no backend
	altFD         int32
	slot          int32
	gen           int32
	provenAt      int32 // second of the clock at which a sealed answer was last noted; 0 for none
	dialTag       int8  // tag of fd[sideBackend]; altFD has the other tag
	state         sessionState
	why           ending // the first reason why the session ends
	ended         bool   // the session has ended, and why says for which reason
	broken        bool   // one side is closed; the session closes after the held bytes are written
	keepaliveSet  bool   // keepalive is set on the backend's socket
	hedged        bool   // a second dial was started
	queued        bool   // the session is in loop.ready
	counted       bool   // the session is in the table of sources: sources.sessionEnded must be called
	moved         bool   // the session has been moved to another backend
	endedByMaster bool   // the last move happened because the master ended the session
	localClient   bool   // the client is on this machine
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

	if err := l.watchSocket(int(s.fd[sideClient]), s.slot, tagClient, s.gen, edges); err != nil {
		l.closeSession(s, endLocal)
		return false
	}

	return true
}

const edges = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

func (l *loop) sessionEvent(s *session, tag int, ev uint32) {
	const in = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	if tag == tagClient {
		up := &s.half[sideClient]
		if ev&in != 0 {
			up.readable = true
			up.rdhup = up.rdhup || ev&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
		}

		if ev&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			s.half[sideBackend].writable = true
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
		l.dialEvent(s, int8(tag), ev)
		return
	}
	if s.state < stateGreeting || int8(tag) != s.dialTag {
		return
	}

	down := &s.half[sideBackend]
	if ev&in != 0 {
		down.readable = true
		down.rdhup = down.rdhup || ev&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
	}

	if ev&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		s.half[sideClient].writable = true
	}

	if s.state == stateGreeting {
		l.exchangeGreeting(s)
		return
	}

	l.pumpBoth(s)
}

// pumpBoth calls pumpFrom for both directions.
func (l *loop) pumpBoth(s *session) {
	moreWork := l.pumpFrom(s, sideClient)
	if s.state == stateOpen && l.pumpFrom(s, sideBackend) {
		moreWork = true
	}
	// A failure in one direction may have broken the session.
	if s.state == stateOpen && s.broken {
		moreWork = l.pumpFrom(s, sideClient) || moreWork
	}
	if s.state == stateOpen && moreWork && !s.queued {
		s.queued = true
		l.ready = append(l.ready, s)
	}
}

// setEnding records why the session ended. A second call changes nothing: the first reason stays.
func (s *session) setEnding(why ending) {
	if !s.ended {
		s.ended, s.why = true, why
	}
}

// outstanding reports whether a request waits for its answer. If both directions are known to be
// ZMTP, outstanding compares their numbers of messages, so heartbeats do not matter. Otherwise it
// reports whether the client was the last to send.
func (s *session) outstanding() bool {
	up, down := &s.half[sideClient], &s.half[sideBackend]
	if up.tracker.followsZMTP() && down.tracker.followsZMTP() {
		return up.tracker.messages != down.tracker.messages || up.tracker.marks.has(markMore) ||
			up.tracker.state != trackFlags
	}
	return up.bytes > 0 && up.lastRead >= down.lastRead
}

// holdsBytes reports whether bytes wait for the destination, in the proxy or in the kernel.
func (h *half) holdsBytes() bool { return h.hasWaiting() || h.peeking || h.stuckSince != 0 }

// cuttable reports whether the session can be cut without loss: no byte is held, no frame is
// incomplete, and nothing was read for quiet nanoseconds. The proxy does not know the frames of a
// stream that is not ZMTP. Such a session must have been silent for ten times as long, at least 10
// s.
func (s *session) cuttable(now, quiet int64) bool {
	for from := range s.half {
		if s.half[from].holdsBytes() {
			return false
		}
	}

	if s.frontend.mode != Publish && s.outstanding() {
		return false
	}

	down := &s.half[sideBackend]
	if !down.tracker.betweenMessages() {
		quiet = max(10*quiet, 10e9)
	}

	last := max(down.lastRead, s.connectedAt)
	if s.frontend.mode != Publish {
		last = max(last, s.half[sideClient].lastRead)
	}

	return (down.tracker.betweenMessages() || !down.tracker.followsZMTP()) && now-last >= quiet
}

// hasUnread reports whether the client has sent bytes that were not read: its next request, which a
// cut would lose.
func (s *session) hasUnread() bool {
	var b [1]byte
	_, e := linux{}.recv(int(s.fd[sideClient]), b[:], unix.MSG_PEEK)
	return e != unix.EAGAIN
}

// closeSession closes the session and frees all that it holds.
func (l *loop) closeSession(s *session, why ending) {
	if s.state == stateClosed {
		return
	}

	was := s.state
	s.setEnding(why)
	if why >= endNoBackend {
		s.why = why // log the proxy's own decision, even if a stream ended before it
	}

	s.state = stateClosed
	for from := range s.half {
		l.dropHeld(&s.half[from])
	}

	l.releaseReplay(s)
	l.dropPrelude(s)
	l.slots[s.slot].session = nil
	l.free = append(l.free, s.slot)
	l.sessions.Add(-1)

	if s.member != nil {
		s.member.sessionLeft(s.half[sideClient].bytes, s.half[sideBackend].bytes)
	}

	if s.altMember != nil {
		s.altMember.sessionLeft(0, 0)
	}

	s.frontend.sessionClosed(s)
	l.proxy.sessionLog.sessionClosed(s, l, was)
	s.resetOnCut(s.why)

	// Close the sockets last: when the peer sees the end of its connection, the counters must
	// already include the session.
	for _, fd := range [3]int32{s.fd[sideClient], s.fd[sideBackend], s.altFD} {
		if fd >= 0 {
			closeSocket(int(fd))
		}
	}

	l.proxy.budget.giveBack(2)
	if s.hedged {
		l.proxy.budget.giveBack(1)
	}
}
