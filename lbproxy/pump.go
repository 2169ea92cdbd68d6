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

// pumpFrom moves one direction until the source is dry, the destination is full or
// the turn is over; true means the last. The order is always: first write
// what is held, only then read on, so a slow destination stops the source and
// at most one read is held for it.
func (l *loop) pumpFrom(s *session, d int) bool {
	h := &s.half[d]
	if h.shut {
		return false
	}

	src, dst := int(s.fd[d]), int(s.fd[1-d])
	for moved := 0; moved < turnBytes; {
		if h.hasWaiting() {
			if !h.writable || !l.flushHeld(s, h, d, dst) {
				return false
			}
			continue
		}

		if h.eof {
			l.finishHalf(s, d)
			return false
		}
		if !h.readable || !h.writable {
			break
		}

		n := 0
		switch {
		case h.splicing:
			n = l.spliceIn(s, h, d, src)
		case h.peeking || l.pendingBytes+bufSize > l.proxy.cfg.Limits.Pending:
			n = l.peekThrough(s, h, d, src, dst)
		default:
			n = l.copyThrough(s, h, d, src, dst)
		}

		if s.state != stateOpen {
			return false
		}

		moved += n
		if h.hasWaiting() {
			continue // what is held goes first, and keeps its place
		}

		if h.peeking && moved >= turnBytes/2 {
			h.peeking = false // it keeps up again
		}

		if moved >= spliceAfter && !h.splicing && !h.peeking && h.readable && h.tracker.unseenBytes() >= spliceLeast {
			if p := l.pipes.get(); p != nil {
				h.store, h.splicing = &store{pipe: p}, true
			}
		}
	}

	if h.eof && !h.hasWaiting() {
		l.finishHalf(s, d)
		return false
	}

	return h.readable && h.writable && !h.shut
}

// noteRead notes n bytes read from the source. b is nil for bytes not seen.
func (l *loop) noteRead(s *session, h *half, d int, b []byte, n int) {
	if b != nil {
		h.tracker.feed(b)
	} else if h.tracker.state == trackBody {
		h.tracker.passBody(uint64(n))
	}

	h.bytes += uint64(n)
	h.lastRead = l.now
	if d == 0 {
		l.noteClient(s)
	}

	if d == 0 && !l.proxy.cfg.Move.Off {
		l.keepClientBytes(s, b)
	}

	if d == 1 {
		if h.bytes == uint64(n) {
			s.endedByMaster = false // from one that had said nothing; this one serves it
		}

		if s.replay != nil && s.frontend.mode == Request && s.prelude != nil && !s.outstanding() {
			l.releaseReplay(s) // it has its answer
		}

		s.member.noteBytes(l.now)
		if h.tracker.marks.has(markSeal) {
			l.noteProof(s, h)
		}
	}
}

// noteProof notes that a master has answered a minion that it has accepted.
func (l *loop) noteProof(s *session, h *half) {
	h.tracker.marks.set(markSeal, false)
	if s.frontend.mode != Request {
		return
	}
	if second := int32(l.now / int64(time.Second)); s.provenAt == 0 || second-s.provenAt >= proofEvery {
		s.provenAt = max(second, 1)
		l.proxy.known.add(s.source.addr(), l.now)
	}
}

// markDry notes that the source has nothing more for now; from a side that takes
// nothing any more nothing will come either.
func (l *loop) markDry(s *session, h *half, d int) {
	h.readable = false
	if d == 1 && s.half[0].refused {
		l.sourceEnded(s, h, d, unix.ECONNRESET)
		return
	}
	h.eof = h.eof || s.broken
}

// sourceEnded handles the end of, or a failure on, the source of a direction.
func (l *loop) sourceEnded(s *session, h *half, d int, e unix.Errno) {
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
	if d == 1 && s.half[0].refused {
		defer l.abandon(s, 0)
	}

	if e == 0 {
		s.setEnding(ending(d)) // endClient or endBackend
		return
	}

	if d == 0 {
		s.setEnding(endClientReset)
	} else {
		s.setEnding(endBackendReset)
		s.member.sessionReset()
	}

	l.abandon(s, 1-d)
}

// abandon gives up the direction whose destination is gone. What the other
// direction holds is still delivered, then the session closes.
func (l *loop) abandon(s *session, d int) {
	h := &s.half[d]
	l.dropHeld(h)
	h.eof = true
	h.shut = true
	h.readable = false
	s.broken = true
	if s.half[1-d].shut {
		l.closeSession(s, s.why)
	}
}

// finishHalf passes an end of stream on, or closes when both have ended.
func (l *loop) finishHalf(s *session, d int) {
	h := &s.half[d]
	if h.shut {
		return
	}
	h.shut = true
	l.dropHeld(h)
	if s.half[1-d].shut {
		l.closeSession(s, s.why)
		return
	}
	endStream(int(s.fd[1-d]))
}

// sendFailed handles a destination that takes nothing any more.
func (l *loop) sendFailed(s *session, d int) {
	if d == 0 && !l.proxy.cfg.Move.Off && s.movable() {
		l.dropHeld(&s.half[0]) // it is kept; the end of what the backend has said moves the session
		s.half[0].writable, s.half[0].refused = false, true
		s.half[1].readable, s.half[1].rdhup = true, true
		return
	}

	if d == 0 {
		s.setEnding(endBackendReset)
	} else {
		s.setEnding(endClientReset)
	}

	// It may have sent an answer before it went: read that to its end.
	if o := &s.half[1-d]; !o.eof {
		o.readable, o.rdhup = true, true
	}

	l.abandon(s, d)
}

// markFull notes that the destination takes nothing now.
func (h *half) markFull(now int64) {
	h.writable = false
	if h.stuckSince == 0 {
		h.stuckSince = now
	}
}

// flushHeld writes what is held; false when the destination is full or gone.
func (l *loop) flushHeld(s *session, h *half, d, dst int) bool {
	st := h.store
	for len(st.pending) > 0 {
		n, e := l.kernel.send(dst, st.pending)
		switch e {
		case 0:
			st.pending = st.pending[n:]
			l.pendingBytes -= int64(n)
			h.stuckSince = 0
		case unix.EINTR:
		case unix.EAGAIN:
			h.markFull(l.now)
			return false
		default:
			l.sendFailed(s, d)
			return false
		}
	}

	st.pending = nil
	for st.hasPiped() {
		n, e := l.kernel.splice(st.pipe.r, dst, st.pipe.n)
		switch {
		case e == unix.EINTR:
		case e == unix.EAGAIN:
			h.markFull(l.now)
			return false
		case e != 0 || n == 0:
			l.sendFailed(s, d)
			return false
		default:
			st.pipe.n -= n
			h.stuckSince = 0
		}
	}

	if st.pipe == nil {
		h.store = nil
	}

	return true
}

// copyThrough reads into the loop's buffer and writes at once; the rest is held.
func (l *loop) copyThrough(s *session, h *half, d, src, dst int) int {
	n, e := l.kernel.recv(src, l.buf, 0)
	switch {
	case e == unix.EINTR:
		return 0
	case e == unix.EAGAIN:
		l.markDry(s, h, d)
		return 0
	case e != 0 || n == 0:
		l.sourceEnded(s, h, d, e)
		return 0
	}

	if n < len(l.buf) && !h.rdhup {
		h.readable = false // a stream gives all it has (epoll(7)); more is a new edge
	}

	b := l.buf[:n]
	l.noteRead(s, h, d, b, n)
	for len(b) > 0 {
		k, e := l.kernel.send(dst, b)
		switch e {
		case 0:
			b = b[k:]
			h.stuckSince = 0
		case unix.EINTR:
		case unix.EAGAIN:
			h.markFull(l.now)
			h.peeking = true
			l.holdBytes(h, append([]byte(nil), b...))
			return n
		default:
			l.sendFailed(s, d)
			return n
		}
	}

	return n
}

// peekThrough moves bytes without ever holding one: it looks at them, writes what the
// destination takes, and only then removes that much from the source.
func (l *loop) peekThrough(s *session, h *half, d, src, dst int) int {
	n, e := l.kernel.recv(src, l.buf[:peekChunk], unix.MSG_PEEK)
	switch {
	case e == unix.EINTR:
		return 0
	case e == unix.EAGAIN:
		l.markDry(s, h, d)
		h.peeking = false
		return 0
	case e != 0 || n == 0:
		h.peeking = false
		l.sourceEnded(s, h, d, e)
		return 0
	}

	k, e := l.kernel.send(dst, l.buf[:n])
	switch e {
	case 0:
	case unix.EINTR:
		return 0
	case unix.EAGAIN:
		h.markFull(l.now)
		h.peeking = true
		return 0
	default:
		l.sendFailed(s, d)
		return 0
	}

	h.stuckSince = 0
	l.noteRead(s, h, d, l.buf[:k], k)
	for left := k; left > 0; {
		m, e := l.kernel.recv(src, l.buf[:left], unix.MSG_TRUNC) // tcp(7): discards
		switch {
		case e == unix.EINTR:
		case e != 0 || m <= 0:
			// It was there a moment ago: only a reset takes it away.
			l.sourceEnded(s, h, d, unix.ECONNRESET)
			return k
		default:
			left -= m
		}
	}

	return k
}

// spliceIn fills the empty pipe; flush empties it in the next round.
func (l *loop) spliceIn(s *session, h *half, d, src int) int {
	want := min(uint64(pipeSize), h.tracker.unseenBytes())
	if want == 0 {
		l.dropHeld(h) // a frame's head comes next and must be read
		return 0
	}

	n, e := l.kernel.splice(src, h.store.pipe.w, int(want))
	switch {
	case e == unix.EINTR:
		return 0
	case e == unix.EAGAIN:
		l.markDry(s, h, d)
		l.dropHeld(h)
		return 0
	case e == unix.EINVAL:
		l.dropHeld(h) // not for this socket; copy
		return 0
	case e != 0 || n == 0:
		l.dropHeld(h)
		l.sourceEnded(s, h, d, e)
		return 0
	}

	h.store.pipe.n = n
	l.noteRead(s, h, d, nil, n)
	return n
}
