package lbproxy

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	spliceAfter = 256 << 10 // moved in one turn before splice is worth a pipe
	spliceLeast = 64 << 10  // a shorter rest of a frame is copied
	peekChunk   = 64 << 10
)

// pump moves one direction until the source is dry, the destination is full or
// the turn is over; true means the last. The order is always: first write
// what is held, only then read on, so a slow destination stops the source and
// at most one read is held for it.
func (l *loop) pump(s *session, d int) bool {
	h := &s.half[d]
	if h.shut {
		return false
	}

	src, dst := int(s.fd[d]), int(s.fd[1-d])
	for moved := 0; moved < turnBytes; {
		if h.waiting() {
			if !h.writable || !l.flush(s, h, d, dst) {
				return false
			}
			continue
		}

		if h.eof {
			l.finish(s, d)
			return false
		}
		if !h.readable || !h.writable {
			break
		}

		n := 0
		switch {
		case h.splicing:
			n = l.spliceIn(s, h, d, src)
		case h.slow || l.pending+bufSize > l.p.cfg.Limits.Pending:
			n = l.peek(s, h, d, src, dst)
		default:
			n = l.copy(s, h, d, src, dst)
		}

		if s.state != stateOpen {
			return false
		}

		moved += n
		if h.waiting() {
			continue // what is held goes first, and keeps its place
		}

		if h.slow && moved >= turnBytes/2 {
			h.slow = false // it keeps up again
		}

		if moved >= spliceAfter && !h.splicing && !h.slow && h.readable && h.track.unseen() >= spliceLeast {
			if p := l.pipes.get(); p != nil {
				h.store, h.splicing = &store{pipe: p}, true
			}
		}
	}

	if h.eof && !h.waiting() {
		l.finish(s, d)
		return false
	}

	return h.readable && h.writable && !h.shut
}

// took notes n bytes read from the source. b is nil for bytes not seen.
func (l *loop) took(s *session, h *half, d int, b []byte, n int) {
	if b != nil {
		h.track.feed(b)
	} else if h.track.state == trackBody {
		h.track.body(uint64(n))
	}

	h.bytes += uint64(n)
	h.last = l.now
	if d == 0 {
		l.heard(s)
	}

	if d == 0 && !l.p.cfg.Move.Off {
		l.remember(s, b)
	}

	if d == 1 {
		if h.bytes == uint64(n) {
			s.fled = false // from one that had said nothing; this one serves it
		}

		if s.keep != nil && s.fe.mode == Request && s.pre != nil && !s.outstanding() {
			l.release(s) // it has its answer
		}

		s.m.heard(l.now)
		if h.track.marks.has(markSeal) {
			l.proven(s, h)
		}
	}
}

// proven notes that a master has answered a minion that it has accepted.
func (l *loop) proven(s *session, h *half) {
	h.track.marks.set(markSeal, false)
	if s.fe.mode != Request {
		return
	}
	if second := int32(l.now / int64(time.Second)); s.proof == 0 || second-s.proof >= proofEvery {
		s.proof = max(second, 1)
		l.p.known.add(s.peer.addr(), l.now)
	}
}

// dry notes that the source has nothing more for now; from a side that takes
// nothing any more nothing will come either.
func (l *loop) dry(s *session, h *half, d int) {
	h.readable = false
	if d == 1 && s.half[0].gone {
		l.sourceEnd(s, h, d, unix.ECONNRESET)
		return
	}
	h.eof = h.eof || s.broken
}

// sourceEnd handles the end of, or a failure on, the source of a direction.
func (l *loop) sourceEnd(s *session, h *half, d int, e unix.Errno) {
	if d == 1 {
		why := endBackend
		if e != 0 {
			why = endBackendReset
		}
		if l.transfer(s, why) {
			return
		}
	}

	h.readable, h.eof = false, true
	if d == 1 && s.half[0].gone {
		defer l.abandon(s, 0)
	}

	if e == 0 {
		s.end(ending(d)) // endClient or endBackend
		return
	}

	if d == 0 {
		s.end(endClientReset)
	} else {
		s.end(endBackendReset)
		s.m.reset()
	}

	l.abandon(s, 1-d)
}

// abandon gives up the direction whose destination is gone. What the other
// direction holds is still delivered, then the session closes.
func (l *loop) abandon(s *session, d int) {
	h := &s.half[d]
	l.drop(h)
	h.eof = true
	h.shut = true
	h.readable = false
	s.broken = true
	if s.half[1-d].shut {
		l.close(s, s.why)
	}
}

// finish passes an end of stream on, or closes when both have ended.
func (l *loop) finish(s *session, d int) {
	h := &s.half[d]
	if h.shut {
		return
	}
	h.shut = true
	l.drop(h)
	if s.half[1-d].shut {
		l.close(s, s.why)
		return
	}
	endStream(int(s.fd[1-d]))
}

// sendFailed handles a destination that takes nothing any more.
func (l *loop) sendFailed(s *session, d int) {
	if d == 0 && !l.p.cfg.Move.Off && s.movable() {
		l.drop(&s.half[0]) // it is kept; the end of what the backend has said moves the session
		s.half[0].writable, s.half[0].gone = false, true
		s.half[1].readable, s.half[1].rdhup = true, true
		return
	}

	if d == 0 {
		s.end(endBackendReset)
	} else {
		s.end(endClientReset)
	}

	// It may have sent an answer before it went: read that to its end.
	if o := &s.half[1-d]; !o.eof {
		o.readable, o.rdhup = true, true
	}

	l.abandon(s, d)
}

// full notes that the destination takes nothing now.
func (h *half) full(now int64) {
	h.writable = false
	if h.stuck == 0 {
		h.stuck = now
	}
}

// flush writes what is held; false when the destination is full or gone.
func (l *loop) flush(s *session, h *half, d, dst int) bool {
	st := h.store
	for len(st.pend) > 0 {
		n, e := l.k.send(dst, st.pend)
		switch e {
		case 0:
			st.pend = st.pend[n:]
			l.pending -= int64(n)
			h.stuck = 0
		case unix.EINTR:
		case unix.EAGAIN:
			h.full(l.now)
			return false
		default:
			l.sendFailed(s, d)
			return false
		}
	}

	st.pend = nil
	for st.piped() {
		n, e := l.k.splice(st.pipe.r, dst, st.pipe.n)
		switch {
		case e == unix.EINTR:
		case e == unix.EAGAIN:
			h.full(l.now)
			return false
		case e != 0 || n == 0:
			l.sendFailed(s, d)
			return false
		default:
			st.pipe.n -= n
			h.stuck = 0
		}
	}

	if st.pipe == nil {
		h.store = nil
	}

	return true
}

// copy reads into the loop's buffer and writes at once; the rest is held.
func (l *loop) copy(s *session, h *half, d, src, dst int) int {
	n, e := l.k.recv(src, l.buf, 0)
	switch {
	case e == unix.EINTR:
		return 0
	case e == unix.EAGAIN:
		l.dry(s, h, d)
		return 0
	case e != 0 || n == 0:
		l.sourceEnd(s, h, d, e)
		return 0
	}

	if n < len(l.buf) && !h.rdhup {
		h.readable = false // a stream gives all it has (epoll(7)); more is a new edge
	}

	b := l.buf[:n]
	l.took(s, h, d, b, n)
	for len(b) > 0 {
		k, e := l.k.send(dst, b)
		switch e {
		case 0:
			b = b[k:]
			h.stuck = 0
		case unix.EINTR:
		case unix.EAGAIN:
			h.full(l.now)
			h.slow = true
			l.hold(h, append([]byte(nil), b...))
			return n
		default:
			l.sendFailed(s, d)
			return n
		}
	}

	return n
}

// peek moves bytes without ever holding one: it looks at them, writes what the
// destination takes, and only then removes that much from the source.
func (l *loop) peek(s *session, h *half, d, src, dst int) int {
	n, e := l.k.recv(src, l.buf[:peekChunk], unix.MSG_PEEK)
	switch {
	case e == unix.EINTR:
		return 0
	case e == unix.EAGAIN:
		l.dry(s, h, d)
		h.slow = false
		return 0
	case e != 0 || n == 0:
		h.slow = false
		l.sourceEnd(s, h, d, e)
		return 0
	}

	k, e := l.k.send(dst, l.buf[:n])
	switch e {
	case 0:
	case unix.EINTR:
		return 0
	case unix.EAGAIN:
		h.full(l.now)
		h.slow = true
		return 0
	default:
		l.sendFailed(s, d)
		return 0
	}

	h.stuck = 0
	l.took(s, h, d, l.buf[:k], k)
	for left := k; left > 0; {
		m, e := l.k.recv(src, l.buf[:left], unix.MSG_TRUNC) // tcp(7): discards
		switch {
		case e == unix.EINTR:
		case e != 0 || m <= 0:
			// It was there a moment ago: only a reset takes it away.
			l.sourceEnd(s, h, d, unix.ECONNRESET)
			return k
		default:
			left -= m
		}
	}

	return k
}

// spliceIn fills the empty pipe; flush empties it in the next round.
func (l *loop) spliceIn(s *session, h *half, d, src int) int {
	want := min(uint64(pipeSize), h.track.unseen())
	if want == 0 {
		l.drop(h) // a frame's head comes next and must be read
		return 0
	}

	n, e := l.k.splice(src, h.store.pipe.w, int(want))
	switch {
	case e == unix.EINTR:
		return 0
	case e == unix.EAGAIN:
		l.dry(s, h, d)
		l.drop(h)
		return 0
	case e == unix.EINVAL:
		l.drop(h) // not for this socket; copy
		return 0
	case e != 0 || n == 0:
		l.drop(h)
		l.sourceEnd(s, h, d, e)
		return 0
	}

	h.store.pipe.n = n
	l.took(s, h, d, nil, n)
	return n
}
