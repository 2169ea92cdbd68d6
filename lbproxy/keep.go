package lbproxy

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// bounds of what is kept of sessions.
const (
	maxPrelude      = 4 << 10  // of one client
	maxPreludes     = 16 << 20 // of all clients of a loop; those that say the same count once
	maxSpareReplays = 256
	maxSpareReplay  = 16 << 10 // bytes of room that an unused keep may have
)

// prelude is what a client says before its first message: its greeting, READY
// and, of a subscriber, its subscriptions. A master that takes a session over
// is told it. Sessions whose clients say the same share one.
type prelude struct {
	said string // "" when the client is not understood: its session stays where it is
	uses int
}

// replay is what a session holds in addition while it may be needed by another
// master: a request that waits for its answer, a frame that has begun.
type replay struct {
	fromClient []byte // said by the client since its prelude, or the prelude until it is whole
	incomplete bool   // it was too much: up does not have it all
	moving     bool   // another master is being asked, see transfer.go
	toMaster   []byte // what that master is to be told yet
	greeting   []byte // what it has said of its greeting and READY
}

// keepClientBytes takes what the client has said. It is called after the tracker has
// seen it; b is nil for bytes that nobody has seen.
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
		l.giveUpRequest(s) // several at once: which of them have an answer is not known
	}
}

// extendPrelude makes the first n bytes that are kept part of the session's prelude.
func (l *loop) extendPrelude(s *session, n int) {
	k := s.replay
	said := string(k.fromClient[:n])
	if s.prelude != nil {
		said = s.prelude.said + said
	}

	l.dropPrelude(s)
	p := l.preludes[said]
	switch {
	case len(said) > maxPrelude || p == nil && l.preludeBytes+len(said) > maxPreludes:
		l.pinToMaster(s)
		return
	case p == nil:
		p = &prelude{said: said}
		l.preludes[said] = p
		l.preludeBytes += len(said)
	}

	p.uses++
	s.prelude = p
	k.fromClient = k.fromClient[:copy(k.fromClient, k.fromClient[n:])]
	l.proxy.counters.keptBytes.Add(-int64(n))
}

// dropPrelude takes the session's prelude from it.
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

var pinned = &prelude{} // of clients that are not understood

// pinToMaster leaves a session at its master for good.
func (l *loop) pinToMaster(s *session) {
	l.dropPrelude(s)
	s.prelude = pinned
	l.releaseReplay(s)
}

// giveUpRequest gives up what is kept of a request; its session can be moved again
// when the answer has passed.
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

// collectSubscriptions adds what a subscriber asks for to its prelude; other frames
// are forgotten.
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

// releaseReplay forgets what is kept beside the prelude.
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

// preludeLen returns how long a greeting of the NULL mechanism and the READY
// after it are, 0 while they are not whole; ok is false when they are something else.
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

// firstFrame returns the body of the first frame and the length of the whole
// frame, 0 while it is not whole. Long frames are not looked for.
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

// isCommand reports whether the body of a command frame is that command.
func isCommand(body []byte, name string) bool {
	return len(body) > len(name) && int(body[0]) == len(name) && string(body[1:1+len(name)]) == name
}

// repeatable reports whether a request that a master may have seen may be asked of
// another one as well. Salt's minions send sealed requests, and repeat them
// themselves when no answer comes; what is sent in the clear is a sign-in or
// comes from a tool, whose jobs must not be published twice.
func repeatable(request []byte) bool {
	at := bytes.Index(request, []byte("enc"))
	if at < 0 {
		return false
	}

	word, found := bytes.CutPrefix(request[at+3:], []byte{0xa3}) // fixstr
	if !found {
		word, found = bytes.CutPrefix(request[at+3:], []byte{0xc4, 3}) // bin 8
	}

	if found && bytes.HasPrefix(word, []byte("aes")) {
		return true
	}

	signIn := bytes.Contains(request, []byte("\xa3cmd\xa5_auth")) ||
		bytes.Contains(request, []byte("\xc4\x03cmd\xc4\x05_auth"))
	return signIn && !bytes.Contains(request, []byte("publish"))
}

// renewEvents has events of descriptors that the session has closed go to nobody, and
// those of its client come again.
func (l *loop) renewEvents(s *session) bool {
	sl := &l.slots[s.slot]
	sl.gen++
	s.gen = sl.gen
	ev := unix.EpollEvent{Events: edges, Fd: s.slot<<2 | tagClient, Pad: s.gen}
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, int(s.fd[sideClient]), &ev) == nil
}
