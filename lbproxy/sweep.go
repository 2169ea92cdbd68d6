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

// each calls f for the open sessions of this loop; f may close them.
func (l *loop) each(f func(*session)) {
	for i := range l.slots {
		if s := l.slots[i].s; s != nil && s.state == stateOpen {
			f(s)
		}
	}
}
