package lbproxy

import (
	"golang.org/x/sys/unix"

	"saltern/internal/proxyproto"
)

// beginSession starts a session for an accepted descriptor.
func (l *loop) beginSession(s *session) {
	if !l.insertSession(s) {
		return
	}
	cfg := &l.proxy.cfg.Connect
	if s.frontend.behindProxy(s.source.addr()) {
		s.state = stateHeader
		l.queueTimer(&l.connectTimers, s, int64(cfg.Header))
		return
	}
	l.startDial(s)
}

func (l *loop) startDial(s *session) {
	s.state = stateDialing
	l.queueTimer(&l.connectTimers, s, int64(l.proxy.cfg.Connect.Timeout))
	l.dialNext(s)
}

// queueTimer appends a deadline to a queue. Deadlines of headers and dials share a queue although
// their delays differ. To keep the queue in order, queueTimer may delay an entry.
func (l *loop) queueTimer(q *[]timer, s *session, delay int64) {
	at := l.now + delay
	if n := len(*q); n > 0 && (*q)[n-1].at > at {
		at = (*q)[n-1].at // the timer fires late, never early
	}
	*q = append(*q, timer{at: at, slot: s.slot, gen: s.gen})
	l.armFor(at)
}

func (l *loop) armFor(at int64) {
	if l.armedFor == 0 || at < l.armedFor {
		l.armTimer()
	}
}

// dialNext dials members until one is connected or connecting. The dial uses the main socket of the
// session, or the alternative socket while the main one is in use.
func (l *loop) dialNext(s *session) {
	for {
		m := s.frontend.chooseMember(s.tried, l.now, s.client.addr())
		if m == nil {
			if s.fd[sideBackend] < 0 && s.altFD < 0 {
				l.closeSession(s, endNoBackend)
			}
			return
		}

		s.tried |= 1 << m.index
		fd, err := newTCP(m.addr)
		if err != nil {
			m.sessionLeft(0, 0)
			l.proxy.logFault("open backend socket", err)
			if s.fd[sideBackend] < 0 && s.altFD < 0 {
				l.closeSession(s, endLocal)
			}
			return
		}

		noDelay(fd)
		e := l.kernel.connect(fd, m.addr)
		for e == unix.EINTR {
			e = unix.EINPROGRESS // connect(2): the kernel continues to connect
		}

		switch e {
		case 0, unix.EINPROGRESS:
		case unix.EADDRNOTAVAIL, unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EACCES:
			// The fault is on this machine, so it is not recorded as a failure of the backend.
			closeSocket(fd)
			m.sessionLeft(0, 0)
			l.proxy.logFault("connect to backend "+m.backend.name, e)
			continue
		default:
			closeSocket(fd)
			m.sessionLeft(0, 0)
			m.dialRefused(e)
			continue
		}

		tag := int8(tagDialA)
		if s.fd[sideBackend] >= 0 {
			tag = otherDial(s.dialTag)
			s.altFD, s.altMember = int32(fd), m
		} else {
			s.fd[sideBackend] = int32(fd)
			s.member = m
			s.dialTag = tag
		}

		if err := l.watchSocket(fd, s.slot, int32(tag), s.gen, edges); err != nil {
			l.closeSession(s, endLocal)
			return
		}
		if e == 0 {
			l.adoptDial(s, tag)
			return
		}

		if h := int64(l.proxy.cfg.Connect.Hedge); h > 0 {
			l.queueTimer(&l.hedgeTimers, s, h)
		}

		return
	}
}

// dialEvent handles the outcome of a dial.
func (l *loop) dialEvent(s *session, tag int8, ev uint32) {
	fd := s.fd[sideBackend]
	if tag != s.dialTag {
		fd = s.altFD
	}

	if fd < 0 {
		return
	}
	if ev&(unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		if ev&unix.EPOLLOUT != 0 {
			if ev&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0 {
				s.half[sideBackend].readable = true
				s.half[sideBackend].rdhup = ev&unix.EPOLLRDHUP != 0
			}
			l.adoptDial(s, tag)
		}

		return
	}

	e := sockErr(int(fd))
	if e == 0 {
		e = unix.ECONNRESET // the backend accepted the connection and closed it before the loop saw it
	}

	m := l.dropDial(s, tag)
	m.dialRefused(e)
	l.dialNext(s)
}

// dropDial closes one dial of a session and returns its member. The session's other dial, if any,
// becomes the main one.
func (l *loop) dropDial(s *session, tag int8) (m *member) {
	if tag == s.dialTag {
		closeSocket(int(s.fd[sideBackend]))
		m = s.member
		s.fd[sideBackend] = s.altFD
		s.member = s.altMember
		s.dialTag = otherDial(s.dialTag)
	} else {
		closeSocket(int(s.altFD))
		m = s.altMember
	}

	s.altFD, s.altMember = -1, nil
	if s.hedged {
		s.hedged = false
		l.proxy.budget.giveBack(1)
	}

	m.sessionLeft(0, 0)
	return m
}

// hedgeDial dials a second backend because the first has been silent for Connect.Hedge. If two
// dials are already silent, it abandons the older one first.
func (l *loop) hedgeDial(s *session) {
	if s.state != stateDialing || s.fd[sideBackend] < 0 {
		return
	}

	if s.altFD >= 0 {
		if !s.frontend.hasAlternative(s.tried) {
			return // there is no third backend: wait for these two
		}
		l.dropDial(s, s.dialTag).lostRace()
	}

	if !s.frontend.hasAlternative(s.tried) || !l.proxy.budget.reserve(1) {
		return
	}

	s.hedged = true
	l.proxy.counters.hedges.Add(1)
	l.dialNext(s)
	if s.state == stateDialing && s.altFD < 0 && s.hedged {
		s.hedged = false
		l.proxy.budget.giveBack(1)
	}
}

// expireConnect runs when a client's header, a dial, or the greeting of a new master has taken too
// long. It closes the session, or tries the next master.
func (l *loop) expireConnect(s *session) {
	if s.state == stateHeader {
		l.closeSession(s, endHeaderTimeout)
		return
	}
	if l.now-max(s.acceptedAt, s.connectedAt) < int64(l.proxy.cfg.Connect.Timeout) {
		return // the timer was set for an earlier step, which ended in time; the current step has its own
	}
	if s.state == stateGreeting {
		s.member.lostRace()
		l.tryNextMaster(s)
		return
	}

	for _, m := range [2]*member{s.member, s.altMember} {
		if m != nil {
			m.lostRace()
		}
	}

	l.closeSession(s, endConnectTimeout)
}

// adoptDial makes the dial with that tag the backend of the session.
func (l *loop) adoptDial(s *session, tag int8) {
	if s.altFD >= 0 {
		loser := s.dialTag
		if loser == tag {
			loser = otherDial(tag)
		}
		l.dropDial(s, loser).lostRace()
	}

	s.member.dialWon()
	if s.replay != nil && s.replay.moving {
		l.beginGreeting(s)
		return
	}

	s.state, s.connectedAt = stateOpen, l.now
	s.half[sideClient].writable = true
	s.half[sideBackend].writable = true
	s.half[sideClient].lastRead, s.half[sideBackend].lastRead = l.now, l.now

	switch s.frontend.mode {
	case Publish:
		// the proxy does not parse what the minion sends, such as PONGs
		s.half[sideClient].tracker.state = trackLost
	case API: // not ZMTP, and another backend could not continue the session
		s.half[sideClient].tracker.state, s.half[sideBackend].tracker.state = trackLost, trackLost
		s.prelude = pinned
	}

	if s.member.sendsHeader {
		l.holdBytes(&s.half[sideClient], s.appendHeader(make([]byte, 0, 64), l.now))
	}

	l.proxy.sessionLog.sessionOpened(s, l)
	l.pumpBoth(s)
}

// readHeader collects a PROXY v2 header. It reads no byte behind the header.
func (l *loop) readHeader(s *session) {
	if s.proxyHeader == nil {
		b := make([]byte, 0, proxyproto.Fixed)
		s.proxyHeader = &b
	}

	hdr := s.proxyHeader
	for {
		want := proxyproto.Fixed
		if len(*hdr) >= proxyproto.Fixed {
			n, err := proxyproto.BodyLen(*hdr)
			if err != nil {
				l.closeSession(s, endHeader)
				return
			}
			want += n
		}

		if len(*hdr) == want {
			break
		}

		n, e := l.kernel.recv(int(s.fd[sideClient]), l.buf[:want-len(*hdr)], 0)
		switch {
		case e == unix.EINTR:
			continue
		case e == unix.EAGAIN:
			return
		case e != 0 || n == 0:
			l.closeSession(s, endHeader)
			return
		}

		*hdr = append(*hdr, l.buf[:n]...)
	}

	ap, err := proxyproto.Parse(*hdr)
	if err != nil {
		l.closeSession(s, endHeader)
		return
	}

	s.proxyHeader = nil
	if ap.IsValid() {
		s.client = packEndpoint(ap)
		if !s.frontend.admits(ap.Addr()) {
			l.closeSession(s, endHeader)
			return
		}

		if why := l.proxy.applySourceLimits(s.frontend, int(s.fd[sideClient]), ap.Addr(), l.now); why != refusals {
			s.frontend.refused[why].Add(1)
			l.proxy.sessionLog.connectionRefused(s.frontend, ap, why)
			l.closeSession(s, endSource)
			return
		}

		s.source, s.counted = s.client, true
	}

	s.half[sideClient].readable = true // bytes may wait behind the header
	s.acceptedAt = l.now
	l.startDial(s)
}
