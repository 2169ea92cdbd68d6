package lbproxy

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	spliceAfter = 256 << 10 // number of bytes moved in one turn from which a splice pays for its pipe
	spliceLeast = 64 << 10  // bytes: a smaller rest of a frame is copied, not spliced
	peekChunk   = 64 << 10
)

// pumpFrom moves the bytes of one direction until the source has no more bytes now, the destination
// accepts none, or the loop's turn ends. It returns true only if the turn ended: more bytes may be
// waiting. It writes the held bytes before it reads more. So a slow destination stops the source,
// and the proxy holds the bytes of at most one read for it.
func (l *loop) pumpFrom(s *session, from side) bool {
	h := &s.half[from]
	if h.shut {
		return false
	}

	src, dst := int(s.fd[from]), int(s.fd[from.other()])
	for moved := 0; moved < turnBytes; {
		if h.hasWaiting() {
			if !h.writable || !l.flushHeld(s, h, from, dst) {
				return false
			}
			continue
		}

		if h.eof {
			l.finishHalf(s, from)
			return false
		}
		if !h.readable || !h.writable {
			break
		}

		n := 0
		switch {
		case h.splicing:
			n = l.spliceIn(s, h, from, src)
		case h.peeking || l.pendingBytes+bufSize > l.proxy.cfg.Limits.Pending:
			n = l.peekThrough(s, h, from, src, dst)
		default:
			n = l.copyThrough(s, h, from, src, dst)
		}

		if s.state != stateOpen {
			return false
		}

		moved += n
		if h.hasWaiting() {
			continue // held bytes go first
		}

		if h.peeking && moved >= turnBytes/2 {
			h.peeking = false // the destination keeps up again
		}

		if moved >= spliceAfter && !h.splicing && !h.peeking && h.readable && h.tracker.unseenBytes() >= spliceLeast {
			if p := l.pipes.get(); p != nil {
				h.store, h.splicing = &store{pipe: p}, true
			}
		}
	}

	if h.eof && !h.hasWaiting() {
		l.finishHalf(s, from)
		return false
	}

	return h.readable && h.writable && !h.shut
}

// noteRead records n bytes read from the source. b is nil if the proxy has not seen the bytes.
func (l *loop) noteRead(s *session, h *half, from side, b []byte, n int) {
	if b != nil {
		h.tracker.feed(b)
	} else if h.tracker.state == trackBody {
		h.tracker.passBody(uint64(n))
	}

	h.bytes += uint64(n)
	h.lastRead = l.now
	if from == sideClient {
		l.noteClient(s)
	}

	if from == sideClient && !l.proxy.cfg.Move.Off {
		l.keepClientBytes(s, b)
	}

	if from == sideBackend {
		if h.bytes == uint64(n) {
			s.endedByMaster = false // the first bytes came: this master serves the session
		}

		if s.replay != nil && s.frontend.mode == Request && s.prelude != nil && !s.outstanding() {
			l.releaseReplay(s) // the request is answered
		}

		s.member.noteBytes(l.now)
		if h.tracker.marks.has(markSeal) {
			l.noteProof(s, h)
		}
	}
}

// noteProof records that the master has sent a sealed answer, which it sends only to a minion that
// it has accepted.
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

// markDry records that the source has no more bytes now. If the client has stopped reading, markDry
// ends the stream.
func (l *loop) markDry(s *session, h *half, from side) {
	h.readable = false
	if from == sideBackend && s.half[sideClient].refused {
		l.sourceEnded(s, h, from, unix.ECONNRESET)
		return
	}
	h.eof = h.eof || s.broken
}

// sourceEnded handles the end of the source's stream, or a failure to read it.
func (l *loop) sourceEnded(s *session, h *half, from side, e unix.Errno) {
	if from == sideBackend {
		why := endBackend
		if e != 0 {
			why = endBackendReset
		}
		if l.transfer(s, why) {
			return
		}
	}

	h.readable, h.eof = false, true
	if from == sideBackend && s.half[sideClient].refused {
		defer l.abandon(s, sideClient)
	}

	if e == 0 {
		if from == sideClient {
			s.setEnding(endClient)
		} else {
			s.setEnding(endBackend)
		}
		return
	}

	if from == sideClient {
		s.setEnding(endClientReset)
	} else {
		s.setEnding(endBackendReset)
		s.member.sessionReset()
	}

	l.abandon(s, from.other())
}

// abandon gives up the direction whose destination has closed. It still delivers the bytes held for
// the other direction, then closes the session.
func (l *loop) abandon(s *session, from side) {
	h := &s.half[from]
	l.dropHeld(h)
	h.eof = true
	h.shut = true
	h.readable = false
	s.broken = true
	if s.half[from.other()].shut {
		l.closeSession(s, s.why)
	}
}

// finishHalf forwards the end of a stream. When both streams have ended, it closes the session.
func (l *loop) finishHalf(s *session, from side) {
	h := &s.half[from]
	if h.shut {
		return
	}
	h.shut = true
	l.dropHeld(h)
	if s.half[from.other()].shut {
		l.closeSession(s, s.why)
		return
	}
	endStream(int(s.fd[from.other()]))
}

// sendFailed handles a destination that accepts no more bytes.
func (l *loop) sendFailed(s *session, from side) {
	if from == sideClient && !l.proxy.cfg.Move.Off && s.movable() {
		// The request is kept. The session moves after the last byte of the backend was read.
		l.dropHeld(&s.half[sideClient])
		s.half[sideClient].writable, s.half[sideClient].refused = false, true
		s.half[sideBackend].readable, s.half[sideBackend].rdhup = true, true
		return
	}

	if from == sideClient {
		s.setEnding(endBackendReset)
	} else {
		s.setEnding(endClientReset)
	}

	// The destination may have sent an answer before it closed: read it to its end.
	if o := &s.half[from.other()]; !o.eof {
		o.readable, o.rdhup = true, true
	}

	l.abandon(s, from)
}

// markFull records that the destination accepts no bytes now.
func (h *half) markFull(now int64) {
	h.writable = false
	if h.stuckSince == 0 {
		h.stuckSince = now
	}
}

// flushHeld writes the held bytes. It returns false when the destination accepts no more bytes or
// has closed.
func (l *loop) flushHeld(s *session, h *half, from side, dst int) bool {
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
			l.sendFailed(s, from)
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
			l.sendFailed(s, from)
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

// copyThrough reads into the loop's buffer and writes at once. It holds the bytes that the
// destination does not accept.
func (l *loop) copyThrough(s *session, h *half, from side, src, dst int) int {
	n, e := l.kernel.recv(src, l.buf, 0)
	switch {
	case e == unix.EINTR:
		return 0
	case e == unix.EAGAIN:
		l.markDry(s, h, from)
		return 0
	case e != 0 || n == 0:
		l.sourceEnded(s, h, from, e)
		return 0
	}

	if n < len(l.buf) && !h.rdhup {
		h.readable = false // a short read empties a stream (epoll(7)); more bytes are a new event
	}

	b := l.buf[:n]
	l.noteRead(s, h, from, b, n)
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
			l.sendFailed(s, from)
			return n
		}
	}

	return n
}

// peekThrough moves bytes without holding any: it looks at them, writes what the destination
// accepts, and only then removes the accepted bytes from the source.
func (l *loop) peekThrough(s *session, h *half, from side, src, dst int) int {
	n, e := l.kernel.recv(src, l.buf[:peekChunk], unix.MSG_PEEK)
	switch {
	case e == unix.EINTR:
		return 0
	case e == unix.EAGAIN:
		l.markDry(s, h, from)
		h.peeking = false
		return 0
	case e != 0 || n == 0:
		h.peeking = false
		l.sourceEnded(s, h, from, e)
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
		l.sendFailed(s, from)
		return 0
	}

	h.stuckSince = 0
	l.noteRead(s, h, from, l.buf[:k], k)
	for left := k; left > 0; {
		m, e := l.kernel.recv(src, l.buf[:left], unix.MSG_TRUNC) // MSG_TRUNC discards the bytes (tcp(7))
		switch {
		case e == unix.EINTR:
		case e != 0 || m <= 0:
			// Only a reset can have discarded the bytes that the peek has returned.
			l.sourceEnded(s, h, from, unix.ECONNRESET)
			return k
		default:
			left -= m
		}
	}

	return k
}

// spliceIn fills the empty pipe. flushHeld empties it in the next round.
func (l *loop) spliceIn(s *session, h *half, from side, src int) int {
	want := min(uint64(pipeSize), h.tracker.unseenBytes())
	if want == 0 {
		l.dropHeld(h) // the head of a frame comes next, which feed must see
		return 0
	}

	n, e := l.kernel.splice(src, h.store.pipe.w, int(want))
	switch {
	case e == unix.EINTR:
		return 0
	case e == unix.EAGAIN:
		l.markDry(s, h, from)
		l.dropHeld(h)
		return 0
	case e == unix.EINVAL:
		l.dropHeld(h) // the kernel cannot splice this socket: copy
		return 0
	case e != 0 || n == 0:
		l.dropHeld(h)
		l.sourceEnded(s, h, from, e)
		return 0
	}

	h.store.pipe.n = n
	l.noteRead(s, h, from, nil, n)
	return n
}
