package lbproxy

import "time"

// sweepSessions applies the time limits to sessions. Each tick covers a tenth of the session table,
// so no session needs a timer.
func (l *loop) sweepSessions() {
	n := len(l.slots)
	part := n/10 + 1
	for range min(part, n) {
		if l.sweepCursor >= n {
			l.sweepCursor = 0
		}
		if s := l.slots[l.sweepCursor].session; s != nil && s.state == stateOpen {
			l.enforceLimits(s)
		}
		l.sweepCursor++
	}
}

// enforceLimits applies the limits to one session.
func (l *loop) enforceLimits(s *session) {
	if !s.keepaliveSet && l.now-s.connectedAt >= int64(time.Second) {
		s.keepaliveSet = true
		if err := keepaliveOpts(int(s.fd[sideBackend]), l.proxy.cfg.Keepalive); err != nil {
			l.proxy.logFault("set keepalive", err)
		}
	}

	f := &s.frontend.cfg
	over := func(since int64, limit time.Duration) bool { return limit > 0 && l.now-since >= int64(limit) }
	for from := range s.half {
		if h := &s.half[from]; h.stuckSince != 0 && over(max(h.stuckSince, 1), f.Stall) && (h.store != nil || h.peeking) {
			l.closeSession(s, endStall)
			return
		}
	}

	// The API itself authenticates its clients.
	if why := l.unprovenEnding(s); s.frontend.mode != API && why != endings {
		l.closeSession(s, why)
		return
	}

	last := max(s.half[sideClient].lastRead, s.half[sideBackend].lastRead)
	switch {
	case s.half[sideClient].shut || s.half[sideBackend].shut:
		if over(last, f.HalfClosed) {
			l.closeSession(s, endHalfClosed)
		}
	case s.frontend.mode == Publish:
	case s.outstanding():
		if over(last, f.Outstanding) {
			l.closeSession(s, endOutstanding)
		}
	case over(last, f.Idle):
		l.closeSession(s, endIdle)
	}
}

// unprovenAge is the greatest age of a session of an unknown source, as a multiple of the limit of
// silence. Without it an attacker could keep a session for ever by sending a byte now and then. The
// multiple is high, because a subscriber sends nothing that makes its source known, and the only
// minion at an address may be quiet for long.
const unprovenAge = 12

// unprovenEnding returns the reason why a session of an unknown source must end, or endings (the
// number of reasons) if the session may stay. A minion whose session is cut reconnects when it
// needs to.
func (l *loop) unprovenEnding(s *session) ending {
	c := &l.proxy.cfg.Connect
	if c.Handshake > 0 && s.half[sideClient].bytes < greetingLen && l.now-s.connectedAt >= int64(c.Handshake) {
		return endHandshake
	}
	if c.Unproven <= 0 || s.provenAt != 0 || s.frontend.sources == nil || !s.counted {
		return endings
	}

	limit := int64(c.Unproven)
	silent := s.frontend.mode == Request && l.now-max(s.half[sideClient].lastRead, s.half[sideBackend].lastRead) >= limit

	// Spread the cuts by slot: sessions that began together must not end together.
	old := l.now-s.connectedAt >= limit*unprovenAge+limit*int64(s.slot%64)/16
	switch a := s.source.addr(); {
	case !silent && !old, a.IsLoopback(), l.proxy.known.contains(a, l.now):
		return endings
	case s.frontend.mode == Request:
		if s.outstanding() && s.half[sideClient].tracker.betweenMessages() {
			return endings // the client's complete request waits for an answer of the master
		}
	case !s.cuttable(l.now, int64(l.proxy.cfg.Rebalance.Quiet)):
		return endings
	}

	return endUnproven
}

// eachOpen calls f for each open session of this loop. f may close sessions.
func (l *loop) eachOpen(f func(*session)) {
	for i := range l.slots {
		if s := l.slots[i].session; s != nil && s.state == stateOpen {
			f(s)
		}
	}
}
