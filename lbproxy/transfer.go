package lbproxy

import (
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/proxyproto"
)

// A session moves to another master without its client noticing if its master is lost, drained or
// relieved of sessions:
//
//	open → (old connection closed) → dialing → greeting → open
//
// The new master gets the client's prelude and the request that has no answer yet. Its greeting is
// not forwarded, because the client has received one from the first master. If the client has
// received nothing yet, the session begins at the new master with all that the client has sent so
// far. A session can move only between two messages to the client. Within a message, or within the
// greeting, the session ends, and the client connects again.

// restFor is how long a session must last at a master to which it moved because its former master
// ended it. If the new master ends the session sooner, the session does not move again: if two
// masters end the same session, the reason may be the session. A session that was moved to drain or
// relieve a master has no such limit.
const restFor = 5 * time.Second

// givenWithin is the time within which a master sends a moved session the jobs that it missed
// before (master/internal/presence, givenWithin). If a connection ends within this time, the
// session may still lack jobs.
const givenWithin = 15 * time.Second

// lostWithin bounds the time from the last byte of a lost master to the move of its sessions.
const lostWithin = 10 * time.Second

// movable reports whether another master could continue the session.
func (s *session) movable() bool {
	up, down := &s.half[sideClient], &s.half[sideBackend]
	if s.state != stateOpen || s.prelude == pinned || up.eof || up.shut || up.rdhup || down.shut || s.broken {
		return false
	}
	if !s.toldNothing() && (s.prelude == nil || !down.tracker.betweenMessages() ||
		down.tracker.marks.has(markMinorOther)) {
		return false
	}

	k := s.replay
	switch {
	case k == nil:
		return true
	case k.incomplete:
		return false
	case s.frontend.mode == Publish || up.tracker.messages == down.tracker.messages:
		return true // no complete message of the client is kept
	}

	return repeatable(k.fromClient)
}

// toldNothing reports whether the client has received no byte yet.
func (s *session) toldNothing() bool { return s.half[sideBackend].bytes == 0 }

// transfer starts to move the session to another master. It returns false if the session cannot be
// moved.
func (l *loop) transfer(s *session, why ending) bool {
	if l.proxy.cfg.Move.Off || !s.movable() || !s.frontend.hasAlternative(1<<s.member.index) {
		return false
	}

	byMaster := why == endBackend || why == endBackendReset
	if byMaster && s.member.State() != Down && l.now-s.connectedAt < int64(restFor) && s.endedByMaster {
		return false
	}

	if s.replay == nil {
		s.replay = l.newReplay()
	}

	down := &s.half[sideBackend]
	if s.moved && l.now-s.connectedAt < int64(givenWithin) {
		// When the session moved to its present master, that master had to send it the jobs that it
		// had missed before. Some of these jobs may not have arrived. So the period of missed jobs
		// begins before that move.
		down.lastRead = min(down.lastRead, s.connectedAt-int64(lostWithin))
	}

	s.replay.moving = true
	s.moved = true
	s.endedByMaster = byMaster
	l.dropHeld(&s.half[sideClient]) // the replay has these bytes
	s.half[sideClient].peeking = false
	s.half[sideClient].stuckSince = 0
	s.half[sideClient].refused = false
	s.tried = 1 << s.member.index
	s.connectedAt = l.now

	if why == endBackendReset {
		s.member.sessionReset()
	}

	s.resetOnCut(why)
	return l.leaveMaster(s)
}

// leaveMaster closes the connection to the session's master. The loop dials another master in its
// next round, because the caller may still use the session in the present round. leaveMaster always
// returns true: the session has been dealt with, even if it had to be closed.
func (l *loop) leaveMaster(s *session) bool {
	closeSocket(int(s.fd[sideBackend]))
	s.member.sessionLeft(0, 0) // the session's bytes are counted when the session ends
	s.fd[sideBackend] = -1
	s.member = nil
	s.state = stateDialing

	if !l.renewEvents(s) {
		l.closeSession(s, endLocal)
		return true
	}

	if !s.queued {
		s.queued = true
		l.ready = append(l.ready, s)
	}

	return true
}

// resumeTransfer dials another master for a session that has left its master.
func (l *loop) resumeTransfer(s *session) {
	if s.state == stateDialing && s.fd[sideBackend] < 0 && s.replay != nil && s.replay.moving {
		l.startDial(s)
	}
}

// beginGreeting starts the exchange with the new master: the client's prelude and request, and the master's
// greeting.
func (l *loop) beginGreeting(s *session) {
	k := s.replay
	s.state = stateGreeting
	s.connectedAt = l.now
	s.keepaliveSet = false
	up, down := &s.half[sideClient], &s.half[sideBackend]
	up.writable = true
	down.readable = true
	down.rdhup = false
	down.eof = false
	k.greeting, k.toMaster = k.greeting[:0], k.toMaster[:0]
	if s.member.sendsHeader {
		k.toMaster = s.appendHeader(k.toMaster, l.now)
	}

	if s.prelude != nil {
		k.toMaster = append(k.toMaster, s.prelude.said...)
	}

	k.toMaster = append(k.toMaster, k.fromClient...)
	if s.toldNothing() {
		l.finishTransfer(s)
		return
	}

	l.queueTimer(&l.connectTimers, s, int64(l.proxy.cfg.Connect.Timeout))
	l.exchangeGreeting(s)
}

// appendHeader appends the PROXY header. For a moved session the header states for a Saltern master
// for how long the minion may have missed published jobs, and how long ago the client connected.
func (s *session) appendHeader(b []byte, now int64) []byte {
	client, here := s.client.addrPort(), localAddr(int(s.fd[sideClient]))
	if s.toldNothing() {
		return proxyproto.Append(b, client, here) // a new session
	}
	return proxyproto.AppendMoved(b, client, here, proxyproto.Move{
		Silent: time.Duration(now - s.half[sideBackend].lastRead),
		Age:    time.Duration(now - s.acceptedAt),
	})
}

// exchangeGreeting sends the prelude and the kept request to the new master, and reads the master's
// greeting, but no byte behind it.
func (l *loop) exchangeGreeting(s *session) {
	k, up := s.replay, &s.half[sideClient]
	for len(k.toMaster) > 0 && up.writable {
		n, e := l.kernel.send(int(s.fd[sideBackend]), k.toMaster)
		switch e {
		case 0:
			k.toMaster = k.toMaster[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			up.markFull(l.now)
		default:
			l.tryNextMaster(s)
			return
		}
	}

	for {
		want, ok := helloRest(k.greeting)
		if !ok {
			l.tryNextMaster(s)
			return
		}
		if want == 0 {
			break
		}

		n, e := l.kernel.recv(int(s.fd[sideBackend]), l.buf[:want], 0)
		switch {
		case e == unix.EINTR:
			continue
		case e == unix.EAGAIN:
			return
		case e != 0 || n == 0:
			l.tryNextMaster(s)
			return
		}

		k.greeting = append(k.greeting, l.buf[:n]...)
	}

	if minorMark(k.greeting[11]) != s.half[sideBackend].tracker.marks&(markMinorOne|markMinorOther) {
		l.tryNextMaster(s) // the client uses the ZMTP version of its first master, which this master does not support
		return
	}

	l.finishTransfer(s)
}

// helloRest returns the least number of bytes that are still missing from a greeting and READY. ok
// is false when b begins with something else.
func helloRest(b []byte) (n int, ok bool) {
	if len(b) < greetingLen+2 {
		var t tracker
		t.feed(b)
		return greetingLen + 2 - len(b), t.state != trackLost
	}
	if b[greetingLen]&flagLong != 0 {
		return 0, false
	}
	if n, ok = preludeLen(b); n > 0 || !ok {
		return 0, ok
	}
	return greetingLen + 2 + int(b[greetingLen+1]) - len(b), true
}

// finishTransfer opens the session to bytes in both directions again.
func (l *loop) finishTransfer(s *session) {
	k := s.replay
	up := &s.half[sideClient]
	down := &s.half[sideBackend]
	k.moving = false

	if len(k.toMaster) > 0 {
		l.holdBytes(up, append([]byte(nil), k.toMaster...))
	}

	if len(k.fromClient) == 0 {
		l.releaseReplay(s)
	}

	s.state, s.connectedAt = stateOpen, l.now
	up.lastRead, down.lastRead = l.now, l.now
	l.proxy.counters.transferred.Add(1)
	l.proxy.sessionLog.sessionMoved(s, l)
	l.pumpBoth(s)
}

// tryNextMaster drops the connection to the new master and dials the next one.
func (l *loop) tryNextMaster(s *session) {
	s.member.sessionReset()
	l.leaveMaster(s)
}
