package plan

import (
	"hash/fnv"
	"slices"
	"time"
)

// State is the state of an entry that one check passes to the next check. The first check of an
// entry gets the zero State.
type State struct {
	Next time.Time `json:"next,omitzero"` // time at which the entry is due; zero: not known
	// Delayed is the time at which the entry is due including its splay. Zero means that the splay
	// is not chosen yet.
	Delayed time.Time `json:"delayed,omitzero"`
	LastRun time.Time `json:"last_run,omitzero"`
	// SkipRun means that the run at LastRun called skip_function and not the entry's function.
	SkipRun bool `json:"skip_run,omitempty"`
	// Started means that the entry was checked before, so run_on_start does not apply any more.
	Started bool `json:"started,omitempty"`
	// Aimed means that the field Armed is valid (for when).
	Aimed bool `json:"aimed,omitempty"`
	// Armed means that the entry has not run yet for the moment in Next (for when).
	Armed bool `json:"armed,omitempty"`
	// RunAt holds the times that run_after_skip_range has added.
	RunAt []time.Time `json:"run_at,omitempty"`
	// LeftAt is the time for which an owner that ended has left a run that had not begun. Zero means none.
	LeftAt time.Time `json:"left_at,omitzero"`
	// Since is the time at which the clock was last set forward, or the first check was made. If the clock is
	// set back, it was ahead since then. Zero: not known.
	Since time.Time `json:"since,omitzero"`
	// RanFrom and RanUntil bound the times, both included, for which the entry has run while the clock was ahead.
	RanFrom  time.Time `json:"ran_from,omitzero"`
	RanUntil time.Time `json:"ran_until,omitzero"`

	// Skipped is why the entry did not run when it was last due. It is "" if the entry did run.
	Skipped     string    `json:"skipped,omitempty"`
	SkippedTime time.Time `json:"skipped_time,omitzero"`
}

// Due returns when the entry runs next, including its splay. The zero time means that the time is
// not known.
func (s State) Due() time.Time {
	if s.Delayed.After(s.Next) {
		return s.Delayed
	}
	return s.Next
}

// RunOf returns the function that the last run before state called.
func (e *Entry) RunOf(state State) string {
	if state.SkipRun {
		return e.skipFun
	}
	return e.Fun
}

// Reasons why an entry that is due does not run. The texts are those of Salt's _skip_reason.
const (
	SkipDisabled   = "disabled"
	SkipRunning    = "maxrunning"
	SkipNotInRange = "not_in_range"
	SkipInRange    = "in_skip_range"
	SkipExplicit   = "skip_explicit"
	SkipUntil      = "until_passed"
	SkipAfter      = "after_not_passed"
)

// Splay returns the delay of a run in seconds, between low and high.
type Splay func(e *Entry, due time.Time, low, high int64) int64

// SameSplay returns a delay that is the same on every master, but differs between the runs of an
// entry.
func SameSplay(e *Entry, due time.Time, low, high int64) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(e.Name))
	_, _ = h.Write(due.AppendFormat(nil, time.RFC3339))
	return low + int64(h.Sum64()%uint64(high-low+1))
}

// Look holds the inputs of one check.
type Look struct {
	Now     time.Time     // civil time of the check
	Window  time.Duration // how long after its time a moment may cause a run
	Running int           // unfinished runs of this entry
	Enabled bool          // the schedule is enabled
	Splay   Splay
}

// Step checks an entry once. It returns the function to run now, or "" for none, and the State for
// the next check.
func (e *Entry) Step(s State, look Look) (fun string, next State) {
	w := step{entry: e, state: s, look: look, fun: e.Fun}
	w.state.Skipped = ""
	w.state.SkippedTime = time.Time{}

	run := w.runsExplicitly()
	if !w.findDue(run) {
		return "", w.state
	}

	run, seconds := w.addSplay(run)
	run = w.timeHasCome(run, seconds)
	start := e.runOnStart && !s.Started
	w.state.Started = true

	if run && !start {
		var failed bool
		if run, failed = w.limitsAllow(); failed {
			return "", w.state
		}
	}

	return w.finishRun(run || start), w.state
}

// step is a Step in progress.
type step struct {
	entry *Entry
	state State
	look  Look
	fun   string
	// skipped means that a limit has skipped the run. The entry is not due again before its next
	// time.
	skipped bool
}

func (w *step) missed(t time.Time) bool { return t.Before(w.look.Now.Add(-w.look.Window)) }

// atMoment reports whether now is at t, or less than a window after t.
func (w *step) atMoment(t time.Time) bool {
	return !w.look.Now.Before(t) && !w.look.Now.After(t.Add(w.look.Window))
}

// runsExplicitly reports whether the entry runs now because of LeftAt, or because of a time that
// run_explicit or run_after_skip_range names (_handle_run_explicit).
func (w *step) runsExplicitly() bool {
	if left := w.state.LeftAt; w.atMoment(left) {
		w.state.LeftAt = time.Time{}
		w.state.Next = left
		return true
	}
	if w.missed(w.state.LeftAt) {
		w.state.LeftAt = time.Time{}
	}

	w.state.RunAt = slices.DeleteFunc(slices.Clone(w.state.RunAt), w.missed)
	for _, t := range append(slices.Clone(w.entry.runAt), w.state.RunAt...) {
		if w.missed(t) {
			continue
		}
		if w.look.Now.Before(t) || !w.look.Now.Before(t.Add(w.look.Window)) {
			return false
		}
		w.state.Next = t
		return true
	}
	return false
}

// findDue computes when the entry is due. It returns false if the entry does not run now, so that
// the check is complete. run is the result of runsExplicitly.
func (w *step) findDue(run bool) bool {
	e, now := w.entry, w.look.Now
	switch {
	case e.interval > 0:
		if w.state.Next.IsZero() {
			w.state.Next = now.Add(e.interval)
		}
		return true
	case !e.once.IsZero():
		return w.dueOnce()
	case e.byWhen:
		return w.dueWhen(run)
	}

	if !w.state.Next.IsZero() {
		return true
	}

	t, ok := e.cron.nextAfter(now)
	w.state.Next = t
	return ok
}

// dueOnce sets the time of an entry with once, by the rules of Salt's _handle_once. It returns
// false if the entry does not run now, so that the check is complete.
func (w *step) dueOnce() bool {
	if !w.state.Next.IsZero() {
		waits := w.state.Next.After(w.look.Now) && w.state.Delayed.IsZero()
		return !waits && !w.missed(w.state.Next)
	}
	if w.state.Delayed.IsZero() {
		w.state.Next = w.entry.once
	}
	return !w.missed(w.state.Next)
}

// dueWhen sets the next time of an entry with when, by the rules of Salt's _handle_when. It returns
// false if the check is complete.
func (w *step) dueWhen(run bool) bool {
	var times []time.Time
	for _, m := range w.entry.when {
		times = append(times, m.onDayOf(w.look.Now))
	}

	if !w.state.Delayed.IsZero() {
		times = append(times, w.state.Delayed)
	}

	if len(times) == 0 {
		return false
	}

	slices.SortFunc(times, time.Time.Compare)
	for len(times) > 1 && w.missed(times[0]) {
		times = times[1:]
	}

	when := times[0]
	if w.missed(when) && !w.state.Armed && !run && w.state.Delayed.IsZero() {
		w.state.Next = time.Time{}
		return false
	}

	if !w.state.Aimed {
		w.state.Aimed = true
		w.state.Armed = !w.missed(when)
	}

	if w.state.Next.IsZero() {
		w.state.Next = when
	}

	if w.state.Next.Before(when) && !run && !w.state.Armed {
		w.state.Next = when
		w.state.Armed = true
	}

	return true
}

// addSplay chooses the splay if it is not chosen yet. It reports whether the entry runs now
// regardless of the due time, and returns the number of seconds until the entry is due.
func (w *step) addSplay(run bool) (bool, float64) {
	now := w.look.Now
	seconds := float64(int64(w.state.Next.Truncate(time.Second).Sub(now.Truncate(time.Second)) / time.Second))
	s := w.entry.splay
	if s == (splay{}) {
		return run, seconds
	}

	if w.state.Delayed.IsZero() {
		d := time.Duration(w.look.Splay(w.entry, w.state.Next, s.low, s.high)) * time.Second
		if now.Before(w.state.Next.Add(d)) {
			w.state.Delayed = w.state.Next.Add(d)
			if w.entry.byWhen {
				w.state.Armed = true
			}
		} else {
			run = true
		}
	}

	if !w.state.Delayed.IsZero() {
		seconds = w.state.Delayed.Sub(now).Seconds()
		if w.entry.byWhen {
			w.state.Next = w.state.Delayed
		}
	}

	return run, seconds
}

// timeHasCome reports whether the entry is due now. It does not check the limits of the entry.
func (w *step) timeHasCome(run bool, seconds float64) bool {
	e := w.entry
	switch {
	case e.interval > 0:
		return run || seconds <= 0
	case e.byWhen && w.state.Armed:
		if !w.atMoment(w.state.Next) {
			return run
		}
		w.state.Armed = false
		return true
	case e.cron != nil:
		if seconds > 0 {
			return run
		}
		w.state.Next = time.Time{}
		return true
	case !e.once.IsZero():
		return run || w.atMoment(w.state.Next)
	}

	return run || seconds == 0
}

// limitsAllow checks the limits of the entry in Salt's order. run reports whether the entry may
// run. The result of each limit overrides the results of earlier limits; Read warns about that.
// failed means that the end of a span is not after its start on this day.
func (w *step) limitsAllow() (run, failed bool) {
	e, now := w.entry, w.look.Now
	run = true
	if e.within != nil {
		start, end, ok := e.within.onDayOf(now)
		if !ok {
			return false, true
		}
		run = w.inRange(start, end)
	}

	if e.skip != nil {
		start, end, ok := e.skip.onDayOf(now)
		if e.runAfterSkip {
			w.addRun(end.Add(w.look.Window + time.Nanosecond))
		}

		if !ok {
			return false, true
		}

		run = now.Before(start) || now.After(end) || w.skipRun(SkipInRange, true)
	}

	if len(e.skipAt) > 0 {
		run = w.notSkipped()
	}

	if e.until != nil {
		run = e.until.onDayOf(now).After(now) || w.skipRun(SkipUntil, false)
	}

	if e.after != nil {
		run = e.after.onDayOf(now).Before(now) || w.skipRun(SkipAfter, false)
	}

	return run, false
}

// inRange reports whether the entry may run by the rules of Salt's _handle_range. An entry that may
// not run because of its range remains due.
func (w *step) inRange(start, end time.Time) bool {
	now := w.look.Now
	if w.entry.invert {
		if now.After(start) && now.Before(end) {
			w.noteSkipped(SkipInRange)
			return false
		}
		return true
	}

	if !now.Before(start) && !now.After(end) {
		return true
	}
	if w.entry.skipFun != "" {
		w.fun = w.entry.skipFun
		return true
	}

	w.noteSkipped(SkipNotInRange)
	return false
}

// notSkipped reports whether the entry may run by the rules of Salt's _handle_skip_explicit. As
// long as any time in skip_explicit is in the future, the entry does not run.
func (w *step) notSkipped() bool {
	for _, t := range w.entry.skipAt {
		if w.missed(t) {
			continue
		}
		if w.atMoment(t) {
			return w.skipRun(SkipExplicit, true)
		}
		return false
	}
	return true
}

// skipRun records that the entry does not run, and why. It then returns false. But if useSkipFun is
// set and the entry has a skip_function, it records nothing and returns true: the skip_function
// will run.
func (w *step) skipRun(why string, useSkipFun bool) bool {
	if useSkipFun && w.entry.skipFun != "" {
		w.fun = w.entry.skipFun
		return true
	}
	w.noteSkipped(why)
	w.skipped = true
	return false
}

func (w *step) noteSkipped(why string) {
	w.state.Skipped = why
	w.state.SkippedTime = w.look.Now
}

func (w *step) addRun(t time.Time) {
	t = t.Truncate(time.Second)
	if !slices.Contains(w.state.RunAt, t) {
		w.state.RunAt = append(w.state.RunAt, t)
	}
}

// finishRun decides whether a due run takes place, and computes when the entry is due again. It
// returns the function to run, or "".
func (w *step) finishRun(run bool) string {
	e, now := w.entry, w.look.Now
	if !w.look.Enabled || !e.Enabled {
		w.skipRun(SkipDisabled, false)
		run = false
	}

	if run && !e.Unlimited && w.look.Running >= e.Max {
		w.skipRun(SkipRunning, false)
		run = false
	}

	if run {
		w.state.LastRun = now
		w.state.SkipRun = w.fun != e.Fun
		w.state.Delayed = time.Time{}
		// An earlier limit may have set Skipped before a later limit overrode its result.
		w.state.Skipped = ""
		w.state.SkippedTime = time.Time{}
	}

	if e.interval > 0 && w.served(run) {
		w.state.Next = now.Add(e.interval)
	}

	if !run {
		return ""
	}

	return w.fun
}

// served reports whether the interval starts again after this check. The interval starts again
// after a run. If a limit has skipped the entry, the interval starts again if the entry was due,
// even if a later limit permits the run after all.
func (w *step) served(run bool) bool {
	if w.skipped {
		return !w.state.Next.After(w.look.Now)
	}
	return run
}
