package lbproxy

import (
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/proxyproto"
)

// A session whose master is gone, drained or relieved is given to another one
// without its client noticing:
//
//	open → (old connection closed) → dialing → greeting → open
//
// The new master is told what the client said at the beginning (its prelude)
// and the request that has no answer yet. What the master says in greeting was
// said to the client long ago and is kept from it. A client that has heard nothing
// yet begins with the new master instead, with what it has said so far. This works
// between two messages to the client only; in the middle of one, or of the greeting,
// the session ends, and the client comes back by itself.

// restFor is how long a session that its master ended stays with the next one before
// it is moved again because that one ended it as well: they may have their reasons. A
// session that was moved to relieve a master, or to empty it, is not meant.
const restFor = 5 * time.Second

// movable reports whether another master could go on with the session.
func (s *session) movable() bool {
	up, down := &s.half[0], &s.half[1]
	if s.state != stateOpen || s.pre == strange || up.eof || up.shut || up.rdhup || down.shut || s.broken {
		return false
	}
	if !s.unheard() && (s.pre == nil || !down.track.between() || down.track.marks.has(markMinorOther)) {
		return false
	}

	k := s.keep
	switch {
	case k == nil:
		return true
	case k.lost:
		return false
	case s.fe.mode == Publish || up.track.msgs == down.track.msgs:
		return true // no whole message of the client is kept
	}

	return repeatable(k.up)
}

// unheard reports whether the client has heard nothing of any master yet.
func (s *session) unheard() bool { return s.half[1].bytes == 0 }

// transfer gives the session to another master, and reports whether there is
// one that could take it.
func (l *loop) transfer(s *session, why ending) bool {
	if l.p.cfg.Move.Off || !s.movable() || !s.fe.another(1<<s.m.idx) {
		return false
	}

	byMaster := why == endBackend || why == endBackendReset
	if byMaster && s.m.State() != Down && l.now-s.opened < int64(restFor) && s.fled {
		return false
	}

	if s.keep == nil {
		s.keep = l.newKeep()
	}

	s.keep.moving = true
	s.moved = true
	s.fled = byMaster
	l.drop(&s.half[0]) // it is kept
	s.half[0].slow = false
	s.half[0].stuck = 0
	s.half[0].gone = false
	s.tried = 1 << s.m.idx
	s.opened = l.now

	if why == endBackendReset {
		s.m.reset()
	}

	s.tellCut(why)
	return l.leave(s)
}

// leave closes the connection to the session's master and has another one
// dialled in the next turn: who calls may be in the middle of this one.
func (l *loop) leave(s *session) bool {
	closeSocket(int(s.fd[1]))
	s.m.left(0, 0) // the bytes are counted where the session ends
	s.fd[1] = -1
	s.m = nil
	s.state = stateDialing

	if !l.renew(s) {
		l.close(s, endLocal)
		return true
	}

	if !s.queued {
		s.queued = true
		l.ready = append(l.ready, s)
	}

	return true
}

// resume dials for a session that has left its master.
func (l *loop) resume(s *session) {
	if s.state == stateDialing && s.fd[1] < 0 && s.keep != nil && s.keep.moving {
		l.startDial(s)
	}
}

// introduced begins the conversation with the new master.
func (l *loop) introduced(s *session) {
	k := s.keep
	s.state = stateGreeting
	s.opened = l.now
	s.tuned = false
	up, down := &s.half[0], &s.half[1]
	up.writable = true
	down.readable = true
	down.rdhup = false
	down.eof = false
	k.hello, k.out = k.hello[:0], k.out[:0]
	if s.m.header {
		k.out = s.header(k.out, time.Duration(l.now-down.last))
	}

	if s.pre != nil {
		k.out = append(k.out, s.pre.said...)
	}

	k.out = append(k.out, k.up...)
	if s.unheard() {
		l.taken(s)
		return
	}

	l.later(&l.limits, s, int64(l.p.cfg.Connect.Timeout))
	l.greet(s)
}

// header appends the PROXY header, by which a master of ours knows that a minion may not have
// got what the last one has published since it was heard.
func (s *session) header(b []byte, silent time.Duration) []byte {
	client, here := s.client.addrPort(), localAddr(int(s.fd[0]))
	if s.unheard() {
		return proxyproto.Append(b, client, here) // it begins
	}
	return proxyproto.AppendMoved(b, client, here, silent)
}

// greet says what the client has said, and takes the master's greeting. It
// reads no byte behind that.
func (l *loop) greet(s *session) {
	k, up := s.keep, &s.half[0]
	for len(k.out) > 0 && up.writable {
		n, e := l.k.send(int(s.fd[1]), k.out)
		switch e {
		case 0:
			k.out = k.out[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			up.full(l.now)
		default:
			l.another(s)
			return
		}
	}

	for {
		want, ok := helloRest(k.hello)
		if !ok {
			l.another(s)
			return
		}
		if want == 0 {
			break
		}

		n, e := l.k.recv(int(s.fd[1]), l.buf[:want], 0)
		switch {
		case e == unix.EINTR:
			continue
		case e == unix.EAGAIN:
			return
		case e != 0 || n == 0:
			l.another(s)
			return
		}

		k.hello = append(k.hello, l.buf[:n]...)
	}

	if minor(k.hello[11]) != s.half[1].track.marks&(markMinorOne|markMinorOther) {
		l.another(s) // the client speaks to it as to a master of another version
		return
	}

	l.taken(s)
}

// helloRest returns how many bytes of a greeting and READY are to come for
// certain; ok is false when they are something else.
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

// taken lets the bytes pass again.
func (l *loop) taken(s *session) {
	k := s.keep
	up := &s.half[0]
	down := &s.half[1]
	k.moving = false

	if len(k.out) > 0 {
		l.hold(up, append([]byte(nil), k.out...))
	}

	if len(k.up) == 0 {
		l.release(s)
	}

	s.state, s.opened = stateOpen, l.now
	up.last, down.last = l.now, l.now
	l.p.count.transferred.Add(1)
	l.p.sessionLog.moved(s, l)
	l.move(s)
}

// another tries the next master.
func (l *loop) another(s *session) {
	s.m.reset()
	l.leave(s)
}
