package lbproxy

import (
	"golang.org/x/sys/unix"

	"saltern/internal/proxyproto"
)

// begin starts a session for an accepted descriptor.
func (l *loop) begin(s *session) {
	if !l.insert(s) {
		return
	}
	cfg := &l.p.cfg.Connect
	if s.fe.behind(s.peer.addr()) {
		s.state = stateHeader
		l.later(&l.limits, s, int64(cfg.Header))
		return
	}
	l.startDial(s)
}

func (l *loop) startDial(s *session) {
	s.state = stateDialing
	l.later(&l.limits, s, int64(l.p.cfg.Connect.Timeout))
	l.dial(s)
}

// later appends to a queue. Headers and dials share the queue of limits with
// two different delays, so an entry may be put off to keep the order.
func (l *loop) later(q *[]timer, s *session, delay int64) {
	at := l.now + delay
	if n := len(*q); n > 0 && (*q)[n-1].at > at {
		at = (*q)[n-1].at // keeps the queue in order; late, never early
	}
	*q = append(*q, timer{at: at, slot: s.slot, gen: s.gen})
	l.armFor(at)
}

func (l *loop) armFor(at int64) {
	if l.armed == 0 || at < l.armed {
		l.arm()
	}
}

// dial tries members until one is connected or on its way. It fills the main
// place, or the second one if the first is taken.
func (l *loop) dial(s *session) {
	for {
		m := s.fe.pick(s.tried, l.now, s.client.addr())
		if m == nil {
			if s.fd[1] < 0 && s.altFD < 0 {
				l.close(s, endNoBackend)
			}
			return
		}

		s.tried |= 1 << m.idx
		fd, err := newTCP(m.addr)
		if err != nil {
			m.left(0, 0)
			l.p.fault("open backend socket", err)
			if s.fd[1] < 0 && s.altFD < 0 {
				l.close(s, endLocal)
			}
			return
		}

		noDelay(fd)
		e := l.k.connect(fd, m.addr)
		for e == unix.EINTR {
			e = unix.EINPROGRESS // connect(2): it goes on by itself
		}

		switch e {
		case 0, unix.EINPROGRESS:
		case unix.EADDRNOTAVAIL, unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EACCES:
			// Our own machine's trouble: no mark against the backend.
			closeSocket(fd)
			m.left(0, 0)
			l.p.fault("connect to backend "+m.be.name, e)
			continue
		default:
			closeSocket(fd)
			m.left(0, 0)
			m.refused(e)
			continue
		}

		side := int8(sideDialA)
		if s.fd[1] >= 0 {
			side = sideDialA + sideDialB - s.side
			s.altFD, s.alt = int32(fd), m
		} else {
			s.fd[1] = int32(fd)
			s.m = m
			s.side = side
		}

		if err := l.watch(fd, s.slot, int32(side), s.gen, edges); err != nil {
			l.close(s, endLocal)
			return
		}
		if e == 0 {
			l.connected(s, side)
			return
		}

		if h := int64(l.p.cfg.Connect.Hedge); h > 0 {
			l.later(&l.hedges, s, h)
		}

		return
	}
}

// dialEvent looks at the outcome of a dial.
func (l *loop) dialEvent(s *session, side int8, ev uint32) {
	fd := s.fd[1]
	if side != s.side {
		fd = s.altFD
	}

	if fd < 0 {
		return
	}
	if ev&(unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		if ev&unix.EPOLLOUT != 0 {
			if ev&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0 {
				s.half[1].readable = true
				s.half[1].rdhup = ev&unix.EPOLLRDHUP != 0
			}
			l.connected(s, side)
		}

		return
	}

	e := sockErr(int(fd))
	if e == 0 {
		e = unix.ECONNRESET // it answered and went within one turn
	}

	m := l.dropDial(s, side)
	m.refused(e)
	l.dial(s)
}

// dropDial closes one of the dials of a session; the other one, if any,
// becomes the main one.
func (l *loop) dropDial(s *session, side int8) (m *member) {
	if side == s.side {
		closeSocket(int(s.fd[1]))
		m = s.m
		s.fd[1] = s.altFD
		s.m = s.alt
		s.side = sideDialA + sideDialB - s.side
	} else {
		closeSocket(int(s.altFD))
		m = s.alt
	}

	s.altFD, s.alt = -1, nil
	if s.hedge {
		s.hedge = false
		l.p.budget.give(1)
	}

	m.left(0, 0)
	return m
}

// hedge runs when a dial has been silent for the hedge time: another backend
// is dialled beside it. With two silent dials the older one is given up.
func (l *loop) hedge(s *session) {
	if s.state != stateDialing || s.fd[1] < 0 {
		return
	}

	if s.altFD >= 0 {
		if !s.fe.another(s.tried) {
			return // nobody else: wait for these two
		}
		l.dropDial(s, s.side).lostRace()
	}

	if !s.fe.another(s.tried) || !l.p.budget.take(1) {
		return
	}

	s.hedge = true
	l.p.count.hedges.Add(1)
	l.dial(s)
	if s.state == stateDialing && s.altFD < 0 && s.hedge {
		s.hedge = false
		l.p.budget.give(1)
	}
}

// limit runs when a session has been without a backend for too long.
func (l *loop) limit(s *session) {
	if s.state == stateHeader {
		l.close(s, endHeaderTimeout)
		return
	}
	if l.now-max(s.start, s.opened) < int64(l.p.cfg.Connect.Timeout) {
		return // the limit of what came in time; what follows has its own
	}
	if s.state == stateGreeting {
		s.m.lostRace()
		l.another(s)
		return
	}

	for _, m := range [2]*member{s.m, s.alt} {
		if m != nil {
			m.lostRace()
		}
	}

	l.close(s, endConnectTimeout)
}

// connected makes the dial on side the backend of the session.
func (l *loop) connected(s *session, side int8) {
	if s.altFD >= 0 {
		loser := s.side
		if loser == side {
			loser = sideDialA + sideDialB - side
		}
		l.dropDial(s, loser).lostRace()
	}

	s.m.won()
	if s.keep != nil && s.keep.moving {
		l.introduced(s)
		return
	}

	s.state, s.opened = stateOpen, l.now
	s.half[0].writable = true
	s.half[1].writable = true
	s.half[0].last, s.half[1].last = l.now, l.now

	switch s.fe.mode {
	case Publish:
		s.half[0].track.state = trackLost // nobody asks about minions' PONGs
	case API: // no ZMTP, and no other backend could go on with it
		s.half[0].track.state, s.half[1].track.state = trackLost, trackLost
		s.pre = strange
	}

	if s.m.header {
		l.hold(&s.half[0], s.header(make([]byte, 0, 64), 0))
	}

	l.p.sessionLog.opened(s, l)
	l.move(s)
}

// readHeader collects a PROXY v2 header without taking a byte behind it.
func (l *loop) readHeader(s *session) {
	if s.hdr == nil {
		b := make([]byte, 0, proxyproto.Fixed)
		s.hdr = &b
	}

	hdr := s.hdr
	for {
		want := proxyproto.Fixed
		if len(*hdr) >= proxyproto.Fixed {
			n, err := proxyproto.BodyLen(*hdr)
			if err != nil {
				l.close(s, endHeader)
				return
			}
			want += n
		}

		if len(*hdr) == want {
			break
		}

		n, e := l.k.recv(int(s.fd[0]), l.buf[:want-len(*hdr)], 0)
		switch {
		case e == unix.EINTR:
			continue
		case e == unix.EAGAIN:
			return
		case e != 0 || n == 0:
			l.close(s, endHeader)
			return
		}

		*hdr = append(*hdr, l.buf[:n]...)
	}

	ap, err := proxyproto.Parse(*hdr)
	if err != nil {
		l.close(s, endHeader)
		return
	}

	s.hdr = nil
	if ap.IsValid() {
		s.client = pack(ap)
		if !s.fe.admits(ap.Addr()) {
			l.close(s, endHeader)
			return
		}

		if why := l.p.judge(s.fe, int(s.fd[0]), ap.Addr(), l.now); why != refusals {
			s.fe.refused[why].Add(1)
			l.p.sessionLog.refused(s.fe, ap, why)
			l.close(s, endSource)
			return
		}

		s.peer, s.counts = s.client, true
	}

	s.half[0].readable = true // the header hid what came behind it
	s.start = l.now
	l.startDial(s)
}
