package lbproxy

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// bounds of what is kept of sessions.
const (
	maxPrelude  = 4 << 10  // of one client
	maxPreludes = 16 << 20 // of all clients of a loop; those that say the same count once
	spareKeeps  = 256
	spareKeep   = 16 << 10 // bytes of room that an unused keep may have
)

// prelude is what a client says before its first message: its greeting, READY
// and, of a subscriber, its subscriptions. A master that takes a session over
// is told it. Sessions whose clients say the same share one.
type prelude struct {
	said string // "" when the client is not understood: its session stays where it is
	uses int
}

// keep is what a session holds in addition while it may be needed by another
// master: a request that waits for its answer, a frame that has begun.
type keep struct {
	up     []byte // said by the client since its prelude, or the prelude until it is whole
	lost   bool   // it was too much: up does not have it all
	moving bool   // another master is being asked, see transfer.go
	out    []byte // what that master is to be told yet
	hello  []byte // what it has said of its greeting and READY
}

// remember takes what the client has said. It is called after the tracker has
// seen it; b is nil for bytes that nobody has seen.
func (l *loop) remember(s *session, b []byte) {
	request := s.fe.mode == Request
	if s.pre != nil && (s.pre.said == "" || request && !s.outstanding()) {
		l.release(s)
		return
	}

	k := s.keep
	if k == nil {
		k = l.newKeep()
		s.keep = k
	}

	if k.lost {
		return
	}

	room := b != nil && len(k.up)+len(b) <= l.p.cfg.Move.Request
	if room && l.p.count.kept.Add(int64(len(b))) > l.p.cfg.Move.Total {
		l.p.count.kept.Add(-int64(len(b)))
		room = false
	}

	if !room {
		l.overflow(s)
		return
	}

	k.up = append(k.up, b...)
	if s.pre == nil {
		n, ok := preludeLen(k.up)
		if !ok || n == 0 && len(k.up) > maxPrelude {
			l.misunderstood(s)
			return
		}
		if n == 0 {
			return
		}

		l.introduce(s, n)
		if s.pre == strange {
			return
		}
	}

	switch {
	case !request:
		l.subscriptions(s)
	case !s.outstanding():
		l.release(s)
	case s.half[0].track.msgs-s.half[1].track.msgs > 1:
		l.overflow(s) // several at once: which of them have an answer is not known
	}
}

// introduce makes the first n bytes that are kept part of the session's prelude.
func (l *loop) introduce(s *session, n int) {
	k := s.keep
	said := string(k.up[:n])
	if s.pre != nil {
		said = s.pre.said + said
	}

	l.unpin(s)
	p := l.preludes[said]
	switch {
	case len(said) > maxPrelude || p == nil && l.preludeBytes+len(said) > maxPreludes:
		l.misunderstood(s)
		return
	case p == nil:
		p = &prelude{said: said}
		l.preludes[said] = p
		l.preludeBytes += len(said)
	}

	p.uses++
	s.pre = p
	k.up = k.up[:copy(k.up, k.up[n:])]
	l.p.count.kept.Add(-int64(n))
}

// unpin takes the session's prelude from it.
func (l *loop) unpin(s *session) {
	p := s.pre
	s.pre = nil
	if p == nil || p.said == "" {
		return
	}
	p.uses--
	if p.uses == 0 {
		delete(l.preludes, p.said)
		l.preludeBytes -= len(p.said)
	}
}

var strange = &prelude{} // of clients that are not understood

// misunderstood leaves a session at its master for good.
func (l *loop) misunderstood(s *session) {
	l.unpin(s)
	s.pre = strange
	l.release(s)
}

// overflow gives up what is kept of a request; its session can be moved again
// when the answer has passed.
func (l *loop) overflow(s *session) {
	l.p.count.unkept.Add(1)
	if s.pre == nil || s.fe.mode == Publish {
		l.misunderstood(s)
		return
	}
	k := s.keep
	l.p.count.kept.Add(-int64(len(k.up)))
	k.up, k.lost = nil, true
}

// subscriptions adds what a subscriber asks for to its prelude; other frames
// are forgotten.
func (l *loop) subscriptions(s *session) {
	k := s.keep
	for len(k.up) > 0 {
		body, n, ok := firstFrame(k.up)
		if !ok || n == 0 && len(k.up) > maxPrelude {
			l.misunderstood(s)
			return
		}
		if n == 0 {
			return
		}

		flags := k.up[0]
		switch {
		case flags&flagCommand != 0 && (command(body, "SUBSCRIBE") || command(body, "CANCEL")),
			flags&flagCommand == 0 && flags&flagMore == 0 && len(body) > 0 && body[0] <= 1:
			l.introduce(s, n)
			if s.pre == strange {
				return
			}
		case flags&flagCommand != 0: // PING, PONG
			k.up = k.up[:copy(k.up, k.up[n:])]
			l.p.count.kept.Add(-int64(n))
		default:
			l.misunderstood(s)
			return
		}
	}

	l.release(s)
}

func (l *loop) newKeep() *keep {
	if n := len(l.keeps); n > 0 {
		k := l.keeps[n-1]
		l.keeps = l.keeps[:n-1]
		return k
	}
	return &keep{}
}

// release forgets what is kept beside the prelude.
func (l *loop) release(s *session) {
	k := s.keep
	if k == nil {
		return
	}
	s.keep = nil
	l.p.count.kept.Add(-int64(len(k.up)))
	if cap(k.up) <= spareKeep && len(l.keeps) < spareKeeps {
		*k = keep{up: k.up[:0]}
		l.keeps = append(l.keeps, k)
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
	if b[greetingLen]&flagCommand == 0 || !command(body, "READY") {
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

// command reports whether the body of a command frame is that command.
func command(body []byte, name string) bool {
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

// renew has events of descriptors that the session has closed go to nobody, and
// those of its client come again.
func (l *loop) renew(s *session) bool {
	sl := &l.slots[s.slot]
	sl.gen++
	s.gen = sl.gen
	ev := unix.EpollEvent{Events: edges, Fd: s.slot<<2 | sideClient, Pad: s.gen}
	return unix.EpollCtl(l.ep, unix.EPOLL_CTL_MOD, int(s.fd[0]), &ev) == nil
}
