package lbproxy

import "time"

// sweep walks the session table once every ten ticks, a tenth at a time, and
// applies the limits of silence. There is no timer per session.
func (l *loop) sweep() {
	n := len(l.slots)
	part := n/10 + 1
	for range min(part, n) {
		if l.cursor >= n {
			l.cursor = 0
		}
		if s := l.slots[l.cursor].s; s != nil && s.state == stateOpen {
			l.check(s)
		}
		l.cursor++
	}
}

// check applies the limits to one session.
func (l *loop) check(s *session) {
	if !s.tuned && l.now-s.opened >= int64(time.Second) {
		s.tuned = true
		if err := keepaliveOpts(int(s.fd[1]), l.p.cfg.Keepalive); err != nil {
			l.p.fault("set keepalive", err)
		}
	}

	f := &s.fe.cfg
	over := func(since int64, limit time.Duration) bool { return limit > 0 && l.now-since >= int64(limit) }
	for d := range s.half {
		if h := &s.half[d]; h.stuck != 0 && over(max(h.stuck, 1), f.Stall) && (h.store != nil || h.slow) {
			l.close(s, endStall)
			return
		}
	}

	// Who asks the API proves himself to it, which sends away who does not.
	if why := l.unproven(s); s.fe.mode != API && why != endings {
		l.close(s, why)
		return
	}

	last := max(s.half[0].last, s.half[1].last)
	switch {
	case s.half[0].shut || s.half[1].shut:
		if over(last, f.HalfClosed) {
			l.close(s, endHalfClosed)
		}
	case s.fe.mode == Publish:
	case s.outstanding():
		if over(last, f.Outstanding) {
			l.close(s, endOutstanding)
		}
	case over(last, f.Idle):
		l.close(s, endIdle)
	}
}

// unprovenAge is how many times as long as it may be silent a session of an
// unknown source may be there at all: nothing that a subscriber sends proves
// anything, and a quiet minion alone behind its address may not ask for long; a
// stranger could send a byte now and then.
const unprovenAge = 12

// unproven reports why a session that has proved nothing is to end; endings
// means that it may stay. Minions make another connection when they need one.
func (l *loop) unproven(s *session) ending {
	c := &l.p.cfg.Connect
	if c.Handshake > 0 && s.half[0].bytes < greetingLen && l.now-s.opened >= int64(c.Handshake) {
		return endHandshake
	}
	if c.Unproven <= 0 || s.proof != 0 || s.fe.sources == nil || !s.counts {
		return endings
	}

	limit := int64(c.Unproven)
	silent := s.fe.mode == Request && l.now-max(s.half[0].last, s.half[1].last) >= limit

	// Spread, or a herd that came at once would be cut at once.
	old := l.now-s.opened >= limit*unprovenAge+limit*int64(s.slot%64)/16
	switch a := s.peer.addr(); {
	case !silent && !old, a.IsLoopback(), l.p.known.has(a, l.now):
		return endings
	case s.fe.mode == Request:
		if s.outstanding() && s.half[0].track.between() {
			return endings // a whole request waits for the master
		}
	case !s.still(l.now, int64(l.p.cfg.Rebalance.Quiet)):
		return endings
	}

	return endUnproven
}

// each calls f for the open sessions of this loop; f may close them.
func (l *loop) each(f func(*session)) {
	for i := range l.slots {
		if s := l.slots[i].s; s != nil && s.state == stateOpen {
			f(s)
		}
	}
}
