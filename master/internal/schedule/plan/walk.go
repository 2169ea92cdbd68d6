package plan

import (
	"slices"
	"time"
)

// maxSteps bounds how many checks one call of Walk makes.
const maxSteps = 20_000

// Walk makes the checks of an entry in the period after begin, up to and including end. It calls
// visit for each run, until visit returns false. It returns the State after the last check. It
// skips checks that would change nothing. Walk assumes that look.Running does not change in that
// period.
//
// If the clock was set back, an entry with calendar times (when, once, cron) is not checked again
// for times before its last run, because its runs before that have already taken place.
func (e *Entry) Walk(s State, begin, end time.Time, look Look, visit func(at time.Time, fun string) bool) State {
	look.Window = window
	if e.interval == 0 {
		s.LastRun = s.boundedLastRun(begin)
		begin = laterOf(begin, s.LastRun)
	}

	at := begin.Truncate(Tick).Add(Tick)
	for range maxSteps {
		if at.IsZero() || at.After(end) {
			return s
		}
		if s.hasRunFor(at) {
			at = s.RanUntil.Add(Tick)
			s = e.Resume(s, at)
			continue
		}

		look.Now = at
		fun, next := e.Step(s, look)
		if fun != "" && !visit(at, fun) {
			return next
		}

		if s.foundNothing(next) {
			at = e.nextLook(next, at)
		} else {
			at = at.Add(Tick)
		}

		s = next
	}

	return s
}

// boundedLastRun returns the time of the last run, or now if that run was at a time of a clock that was ahead by
// more than maxClockBack.
func (s State) boundedLastRun(now time.Time) time.Time {
	if s.LastRun.Sub(now) > maxClockBack {
		return now
	}
	return s.LastRun
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// hasRunFor reports whether the entry has run for a time while the clock was ahead.
func (s State) hasRunFor(at time.Time) bool {
	return !s.RanUntil.IsZero() && !at.Before(s.RanFrom) && !at.After(s.RanUntil)
}

// WentForward returns the State after a wrong clock may have been set forward to now. The checks before now have
// been made after from.
func (s State) WentForward(from, now time.Time) State {
	s.Since = now
	if s.LastRun.After(from) && s.LastRun.Before(now) {
		s.Since = s.LastRun // a run of the time that the clock has skipped
	}
	return s
}

// CameBack returns the State after a clock that was ahead was set back to now. The entry is due again at times
// for which it has not run.
func (e *Entry) CameBack(s State, now time.Time) State {
	if e.interval > 0 || !s.LastRun.After(now) {
		return s
	}
	if bounded := s.boundedLastRun(now); !bounded.Equal(s.LastRun) {
		s.LastRun = bounded
		s.Since = now
		return s
	}
	if s.Since.IsZero() {
		return s
	}

	from := s.Since
	if from.After(s.LastRun) {
		from = s.LastRun
	}
	next := State{
		Started:  s.Started,
		LastRun:  now,
		RunAt:    s.RunAt,
		LeftAt:   s.LeftAt,
		Since:    now,
		RanFrom:  from,
		RanUntil: s.LastRun,
	}
	if !next.LeftAt.IsZero() && next.hasRunFor(next.LeftAt) {
		next.LeftAt = next.RanUntil.Add(Tick) // the next check
	}
	return next
}

// foundNothing reports whether a check changed nothing. If so, the next checks change nothing
// either, until the time that nextLook returns.
func (s State) foundNothing(next State) bool {
	same := s.Next.Equal(next.Next) && s.Delayed.Equal(next.Delayed) && s.LastRun.Equal(next.LastRun)
	return same && s.Armed == next.Armed && s.Aimed == next.Aimed && s.Started == next.Started &&
		len(s.RunAt) == len(next.RunAt) && s.LeftAt.Equal(next.LeftAt)
}

// Resume returns the State with which checks continue at restart, after a time without checks. A
// calendar entry (when, once, cron) that was due in that time has missed its run, as it would after
// a restart of Salt's master. An interval that has ended in that time is due at once.
func (e *Entry) Resume(s State, restart time.Time) State {
	due := s.Due()
	if e.interval > 0 || due.IsZero() || !due.Before(restart) {
		return s
	}
	return State{
		Started:  s.Started,
		LastRun:  s.LastRun,
		RunAt:    s.RunAt,
		LeftAt:   s.LeftAt,
		Since:    s.Since,
		RanFrom:  s.RanFrom,
		RanUntil: s.RanUntil,
	}
}

// Tells reports whether next contains data that another master could not compute from s: a delay
// beyond the due time, or a time that run_after_skip_range has added.
func (e *Entry) Tells(s, next State) bool {
	delayed := e.interval == 0 && !next.Delayed.IsZero() && !next.Delayed.Equal(s.Delayed)
	added := slices.ContainsFunc(next.RunAt, func(t time.Time) bool { return !slices.Contains(s.RunAt, t) })
	return delayed || added
}

// Passed reports whether the entry is never due any more, because its time (once) is before now. run_explicit
// may name further times.
func (e *Entry) Passed(now time.Time) bool {
	return !e.once.IsZero() && e.once.Before(now) && !slices.ContainsFunc(e.runAt, now.Before)
}

// maxClockBack bounds how far the clock may be set back without a repetition of calendar runs: those of times
// further ahead are repeated. The value exceeds a change to or from summer time.
const maxClockBack = 3 * time.Hour

// Shift returns the State after the clock was set forward by step, or back if step is negative. It
// shifts the due time of an interval by step, because an interval is a length of time, and LeftAt, which is the
// next check. It does not shift calendar times.
func (e *Entry) Shift(s State, step time.Duration) State {
	if !s.LeftAt.IsZero() {
		s.LeftAt = s.LeftAt.Add(step)
	}
	if e.interval == 0 && step < -maxClockBack {
		return State{Started: s.Started, LastRun: s.LastRun, LeftAt: s.LeftAt, Since: s.Since}
	}
	if e.interval == 0 {
		return s
	}
	if !s.Next.IsZero() {
		s.Next = s.Next.Add(step)
	}
	if !s.Delayed.IsZero() {
		s.Delayed = s.Delayed.Add(step)
	}
	return s
}

// nextLook returns the next time after the time last at which a check may change the state. The
// zero time means never.
func (e *Entry) nextLook(s State, last time.Time) time.Time {
	soon := last.Truncate(Tick).Add(Tick)
	times := append([]time.Time{s.Next, s.Delayed, s.LeftAt}, e.runAt...)
	times = append(times, s.RunAt...)
	for _, t := range e.skipAt {
		times = append(times, t, t.Add(Tick), t.Add(2*Tick))
	}

	moments := slices.Clone(e.when)
	for _, m := range []*moment{e.until, e.after} {
		if m != nil {
			moments = append(moments, *m)
		}
	}

	for _, s := range []*span{e.within, e.skip} {
		if s != nil {
			moments = append(moments, s.start, s.end)
		}
	}

	for _, m := range moments {
		t := m.onDayOf(last)
		times = append(times, t, t.Add(Tick), t.Add(2*Tick))
		if !m.isAbsolute() {
			times = append(times, last.Truncate(24*time.Hour).Add(24*time.Hour))
		}
	}

	var first time.Time
	for _, t := range times {
		if t = t.Truncate(Tick); t.Before(soon) {
			continue
		}
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}

	return first
}

// Run is a future run.
type Run struct {
	At  time.Time
	Fun string
}

// Upcoming returns the next runs after now, at most limit.
func (p *Plan) Upcoming(e *Entry, s State, now time.Time, limit int) (runs []Run) {
	if limit <= 0 || !p.Enabled || !e.Enabled {
		return nil
	}
	look := Look{Enabled: p.Enabled, Splay: SameSplay}
	e.Walk(s, now, now.AddDate(cronSearch, 0, 0), look, func(at time.Time, fun string) bool {
		runs = append(runs, Run{at, fun})
		return len(runs) < limit
	})
	return runs
}
