package lbproxy

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// Bounds of the data that a loop keeps to move sessions, in bytes.
const (
	maxPrelude      = 4 << 10  // prelude of one client
	maxPreludes     = 16 << 20 // preludes of all clients of a loop; equal preludes count once
	maxSpareReplays = 256
	maxSpareReplay  = 16 << 10 // capacity in bytes that an unused replay may keep
)

// prelude is a client's data before its first message: its greeting, READY and, for a subscriber,
// its subscriptions. When another master takes over the session, the proxy first sends it the
// prelude. Sessions with equal preludes share one copy.
type prelude struct {
	said string // "": the bytes could not be parsed, so the session cannot move
	uses int
}

// replay holds the data that another master needs to continue a session: a request that waits for
// its answer, or an incomplete frame.
type replay struct {
	fromClient []byte // the client's bytes behind the prelude; while the prelude is incomplete, its bytes
	incomplete bool   // fromClient lacks bytes, because the client sent more than the limit
	moving     bool   // another master is taking the session over, see transfer.go
	toMaster   []byte // bytes still to be sent to the new master
	greeting   []byte // received part of the new master's greeting and READY
}

// keepClientBytes appends bytes that the client has sent to the session's replay buffer. The caller
// has already passed them to the tracker. b is nil if the bytes went through a pipe, so that the
// proxy did not see them.
func (l *loop) keepClientBytes(s *session, b []byte) {
	request := s.frontend.mode == Request
	if s.prelude != nil && (s.prelude.said == "" || request && !s.outstanding()) {
		l.releaseReplay(s)
		return
	}

	k := s.replay
	if k == nil {
		k = l.newReplay()
		s.replay = k
	}

	if k.incomplete {
		return
	}

	room := b != nil && len(k.fromClient)+len(b) <= l.proxy.cfg.Move.Request
	if room && l.proxy.counters.keptBytes.Add(int64(len(b))) > l.proxy.cfg.Move.Total {
		l.proxy.counters.keptBytes.Add(-int64(len(b)))
		room = false
	}

	if !room {
		l.giveUpRequest(s)
		return
	}

	k.fromClient = append(k.fromClient, b...)
	if s.prelude == nil {
		n, ok := preludeLen(k.fromClient)
		if !ok || n == 0 && len(k.fromClient) > maxPrelude {
			l.pinToMaster(s)
			return
		}
		if n == 0 {
			return
		}

		l.extendPrelude(s, n)
		if s.prelude == pinned {
			return
		}
	}

	switch {
	case !request:
		l.collectSubscriptions(s)
	case !s.outstanding():
		l.releaseReplay(s)
	case s.half[sideClient].tracker.messages-s.half[sideBackend].tracker.messages > 1:
		l.giveUpRequest(s) // several requests are open: it is unknown which of them are answered
	}
}

// extendPrelude moves the first n kept bytes to the session's prelude.
func (l *loop) extendPrelude(s *session, n int) {
	k := s.replay
	key := string(k.fromClient[:n])
	if s.prelude != nil {
		key = s.prelude.said + key
	}

	l.dropPrelude(s)
	p := l.preludes[key]
	switch {
	case len(key) > maxPrelude || p == nil && l.preludeBytes+len(key) > maxPreludes:
		l.pinToMaster(s)
		return
	case p == nil:
		p = &prelude{said: key}
		l.preludes[key] = p
		l.preludeBytes += len(key)
	}

	p.uses++
	s.prelude = p
	k.fromClient = k.fromClient[:copy(k.fromClient, k.fromClient[n:])]
	l.proxy.counters.keptBytes.Add(-int64(n))
}

// dropPrelude releases the session's prelude.
func (l *loop) dropPrelude(s *session) {
	p := s.prelude
	s.prelude = nil
	if p == nil || p.said == "" {
		return
	}
	p.uses--
	if p.uses == 0 {
		delete(l.preludes, p.said)
		l.preludeBytes -= len(p.said)
	}
}

// pinned is the prelude of clients whose bytes could not be parsed.
var pinned = &prelude{}

// pinToMaster marks a session as unable to move to another master.
func (l *loop) pinToMaster(s *session) {
	l.dropPrelude(s)
	s.prelude = pinned
	l.releaseReplay(s)
}

// giveUpRequest discards the kept request. The session cannot move until the answer to that request
// has passed.
func (l *loop) giveUpRequest(s *session) {
	l.proxy.counters.requestsNotKept.Add(1)
	if s.prelude == nil || s.frontend.mode == Publish {
		l.pinToMaster(s)
		return
	}
	k := s.replay
	l.proxy.counters.keptBytes.Add(-int64(len(k.fromClient)))
	k.fromClient, k.incomplete = nil, true
}

// collectSubscriptions adds a subscriber's subscriptions to its prelude and discards all other
// frames.
func (l *loop) collectSubscriptions(s *session) {
	k := s.replay
	for len(k.fromClient) > 0 {
		body, n, ok := firstFrame(k.fromClient)
		if !ok || n == 0 && len(k.fromClient) > maxPrelude {
			l.pinToMaster(s)
			return
		}
		if n == 0 {
			return
		}

		flags := k.fromClient[0]
		switch {
		case flags&flagCommand != 0 && (isCommand(body, "SUBSCRIBE") || isCommand(body, "CANCEL")),
			flags&flagCommand == 0 && flags&flagMore == 0 && len(body) > 0 && body[0] <= 1:
			l.extendPrelude(s, n)
			if s.prelude == pinned {
				return
			}
		case flags&flagCommand != 0: // PING, PONG
			k.fromClient = k.fromClient[:copy(k.fromClient, k.fromClient[n:])]
			l.proxy.counters.keptBytes.Add(-int64(n))
		default:
			l.pinToMaster(s)
			return
		}
	}

	l.releaseReplay(s)
}

func (l *loop) newReplay() *replay {
	if n := len(l.spareReplays); n > 0 {
		k := l.spareReplays[n-1]
		l.spareReplays = l.spareReplays[:n-1]
		return k
	}
	return &replay{}
}

// releaseReplay drops the session's replay buffer, but not its prelude. The loop keeps a small
// buffer for reuse.
func (l *loop) releaseReplay(s *session) {
	k := s.replay
	if k == nil {
		return
	}
	s.replay = nil
	l.proxy.counters.keptBytes.Add(-int64(len(k.fromClient)))
	if cap(k.fromClient) <= maxSpareReplay && len(l.spareReplays) < maxSpareReplays {
		*k = replay{fromClient: k.fromClient[:0]}
		l.spareReplays = append(l.spareReplays, k)
	}
}

// preludeLen returns the length of a greeting of the NULL mechanism and the READY behind it, or 0 while
// they are incomplete. ok is false when b begins with something else.
func preludeLen(b []byte) (n int, ok bool) {
	if len(b) < greetingLen {
		return 0, true
	}
	if b[0] != 0xff || b[9] != 0x7f || b[10] != versionMajor || string(b[12:17]) != "NULL\x00" {
		return 0, false
	}

	body, n, ok := firstFrame(b[greetingLen:])
	if !ok || n == 0 {
		return 0, ok
	}
	if b[greetingLen]&flagCommand == 0 || !isCommand(body, "READY") {
		return 0, false
	}

	return greetingLen + n, true
}

// firstFrame returns the body of the first frame and the length of the whole frame, or 0 while it is
// incomplete. ok is false for a long frame, which is not expected here.
func firstFrame(b []byte) (body []byte, n int, ok bool) {
	if len(b) > 0 && b[0]&^(flagMore|flagCommand) != 0 {
		return nil, 0, false
	}
	if len(b) < 2 || len(b) < 2+int(b[1]) {
		return nil, 0, true
	}
	n = 2 + int(b[1])
	return b[2:n], n, true
}

// isCommand reports whether body is the body of the command called name.
func isCommand(body []byte, name string) bool {
	return len(body) > len(name) && int(body[0]) == len(name) && string(body[1:1+len(name)]) == name
}

// repeatable reports whether a request may be sent to a second master although the first may have
// handled it. Sealed requests come from minions, which themselves repeat a request that gets no
// answer. A clear request is repeatable if it is a sign-in. Other clear requests come from tools,
// whose jobs must not be published twice.
func repeatable(request []byte) bool {
	at := bytes.Index(request, []byte("enc"))
	if at < 0 {
		return false
	}

	word, found := bytes.CutPrefix(request[at+3:], []byte{0xa3}) // the text has the form of msgpack's fixstr
	if !found {
		word, found = bytes.CutPrefix(request[at+3:], []byte{0xc4, 3}) // the text has the form of msgpack's bin 8
	}

	if found && bytes.HasPrefix(word, []byte("aes")) {
		return true
	}

	signIn := bytes.Contains(request, []byte("\xa3cmd\xa5_auth")) ||
		bytes.Contains(request, []byte("\xc4\x03cmd\xc4\x05_auth"))
	return signIn && !bytes.Contains(request, []byte("publish"))
}

// renewEvents raises the session's gen, so that late events of closed descriptors are ignored, and
// asks epoll for the client's events once more. It reports whether epoll accepted that.
func (l *loop) renewEvents(s *session) bool {
	sl := &l.slots[s.slot]
	sl.gen++
	s.gen = sl.gen
	ev := unix.EpollEvent{Events: edges, Fd: s.slot<<2 | tagClient, Pad: s.gen}
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, int(s.fd[sideClient]), &ev) == nil
}
