// Package plan says when the entries of the master's option schedule are due, as Salt's evaluator
// does (salt/utils/schedule.py Schedule.eval).
//
// [Read] makes a [Plan] of the option and reports everything in it that cannot be obeyed.
// [Entry.Step] is one check of one entry: from its [State] and the time it computes the next State
// and whether the entry is due. It is a pure function, so the shown future, the continuation by
// another master, and the actual runs agree.
//
// All times are civil: the wall clock of the master, in time.UTC.
package plan

import (
	"time"

	"saltern/master/value"
)

// Tick is how often an entry is checked. A moment (when, once) that no check meets within window
// counts as missed. Salt's master uses its option loop_interval for both; its checks are a little
// further apart than that, so a window there contains one check.
const (
	Tick   = time.Second
	window = Tick - time.Nanosecond
)

// Plan is the option schedule.
type Plan struct {
	Enabled bool
	Entries []*Entry // in the order of the option
}

// Entry is one entry of a Plan.
type Entry struct {
	Key       string // in the option
	Name      string // the key, unless the entry has a name
	Digest    string // Digest is a digest of all settings of the entry.
	Fun       string
	Args      []any
	Kwargs    *value.Map // nil: none
	Enabled   bool
	DryRun    bool
	Unlimited bool // jid_include: False: maxrunning does not apply
	Max       int  // runs at once

	// Use of a result.
	Silent       bool // return_job: False
	Uncached     bool // return_job: nocache
	Returners    []string
	ReturnConfig any
	ReturnKwargs any
	Metadata     *value.Map // nil: none

	interval time.Duration // 0: due by when, once or cron
	when     []moment
	byWhen   bool
	once     time.Time // zero: none
	cron     *cron

	runOnStart   bool
	splay        splay
	within       *span // range
	invert       bool
	skip         *span // skip_during_range
	runAfterSkip bool
	skipFun      string // skip_function: runs in place of a skipped Fun
	skipAt       []time.Time
	runAt        []time.Time
	until        *moment
	after        *moment
}

// splay is a random delay of whole seconds; zero: none.
type splay struct{ low, high int64 }

// span is a time from start to end, both included.
type span struct{ start, end moment }

// onDayOf returns the span as evaluated on the day of now. ok is false when it ends before it
// begins.
func (s *span) onDayOf(now time.Time) (start, end time.Time, ok bool) {
	start = s.start.onDayOf(now)
	end = s.end.onDayOf(now)
	return start, end, end.After(start)
}

// Trigger says in words when the entry is due.
func (e *Entry) Trigger() string {
	switch {
	case e.interval > 0:
		return "every " + e.interval.String()
	case !e.once.IsZero():
		return "once"
	case e.cron != nil:
		return "cron"
	}
	return "when"
}

// Civil returns the wall clock at t.
func Civil(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// Problem is a part of the option that is not obeyed as written.
type Problem struct {
	Entry   string // its key; "" for the whole schedule
	Key     string // "" for the entry as a whole
	Refused bool   // the entry, or the whole schedule, does not run
	Text    string
}
