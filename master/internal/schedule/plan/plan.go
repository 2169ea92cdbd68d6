// Package plan computes when the entries of the master's option schedule are due, as Salt's evaluator
// does (salt/utils/schedule.py Schedule.eval).
//
// [Read] makes a [Plan] from the option and reports everything that it cannot obey. [Entry.Step]
// makes one check of one entry: from the entry's [State] and the time it computes the next State, and
// whether the entry is due. It is a pure function. So the runs that are shown in advance, those after
// another master takes over, and the actual ones are the same.
//
// All times are civil: what the master's wall clock shows, as a time.Time in time.UTC.
package plan

import (
	"time"

	"saltern/master/value"
)

// Tick is how often an entry is checked. A moment (of when or once) counts as missed if no check
// falls within window after it. Salt's master uses its option loop_interval both as tick and as
// window. Its checks are a little further apart than that, so there is one check within a window
// there, too.
const (
	Tick   = time.Second
	window = Tick - time.Nanosecond
)

// Plan is the option schedule in the form that the master carries out.
type Plan struct {
	Enabled bool
	Entries []*Entry // in the order of the option
}

// Entry is one entry of a Plan.
type Entry struct {
	Key       string // key of the entry in the option
	Name      string // option name of the entry; without it, the key
	Digest    string // hash of all settings of the entry
	Fun       string
	Args      []any
	Kwargs    *value.Map // nil if there are none
	Enabled   bool
	DryRun    bool
	Unlimited bool // option jid_include is False: maxrunning does not apply
	Max       int  // option maxrunning: how many runs may be at work at once

	// What to do with the result:
	Silent       bool // option return_job is False: fire no event
	Uncached     bool // option return_job is nocache: the job cache does not keep it
	Returners    []string
	ReturnConfig any
	ReturnKwargs any
	Metadata     *value.Map // nil if there is none

	interval time.Duration // 0: it is due by when, once or cron
	when     []moment
	byWhen   bool
	once     time.Time // zero: not set
	cron     *cron

	runOnStart   bool
	splay        splay
	within       *span // option range
	invert       bool
	skip         *span // option skip_during_range
	runAfterSkip bool
	skipFun      string // option skip_function: it runs when Fun is skipped
	skipAt       []time.Time
	runAt        []time.Time
	until        *moment
	after        *moment
}

// splay is a random delay of low to high whole seconds. The zero value means none.
type splay struct{ low, high int64 }

// span is the time from start to end, both included.
type span struct{ start, end moment }

// onDayOf evaluates the span on the day of now. ok is false if its end is not after its start.
func (s *span) onDayOf(now time.Time) (start, end time.Time, ok bool) {
	start = s.start.onDayOf(now)
	end = s.end.onDayOf(now)
	return start, end, end.After(start)
}

// Trigger says in a word or two what makes the entry due.
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

// Civil returns what the wall clock shows at t.
func Civil(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// Problem is a part of the option that is not obeyed as written.
type Problem struct {
	Entry   string // key of the entry; "" for the whole schedule
	Key     string // key in the entry; "" for the entry as a whole
	Refused bool   // the entry, or the whole schedule, does not run
	Text    string
}
