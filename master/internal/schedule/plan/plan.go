// Package plan says when the entries of the master's option schedule are due, as Salt's
// evaluator does (salt/utils/schedule.py Schedule.eval).
//
// [Read] makes a [Plan] of the option and names everything in it that cannot be obeyed.
// [Entry.Step] is one look at one entry: of its [State] and the time it makes the next
// State and says whether the entry is due. It is a pure function, so what is shown of the
// future, what another master goes on with, and what runs are the same.
//
// All times are civil: fields of the clock on the wall of the master, in time.UTC.
package plan

import (
	"time"

	"saltern/master/value"
)

// Tick is how often an entry is looked at. A moment (when, once) that is not seen within a
// window counts as missed. Salt's master takes its option loop_interval for both; since its
// looks are a little further apart than that, a window holds one.
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
	Digest    string // of all that the option says about it
	Fun       string
	Args      []any
	Kwargs    *value.Map // nil: none
	Enabled   bool
	DryRun    bool
	Unlimited bool // jid_include: False: maxrunning does not count
	Max       int  // runs at once

	// What becomes of a result.
	Silent       bool // return_job: False
	Uncached     bool // return_job: nocache
	Returners    []string
	ReturnConfig any
	ReturnKwargs any
	Metadata     *value.Map // nil: none

	interval time.Duration // 0: by when, once or cron
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
	skipFun      string // skip_function: runs in place of Fun where that is skipped
	skipAt       []time.Time
	runAt        []time.Time
	until        *moment
	after        *moment
}

// splay is a random delay of whole seconds; zero: none.
type splay struct{ low, high int64 }

// span is a time from start to end, both included.
type span struct{ start, end moment }

// onDayOf returns the span as it is meant on the day of now; false: it ends before it begins.
func (s *span) onDayOf(now time.Time) (start, end time.Time, ok bool) {
	start = s.start.onDayOf(now)
	end = s.end.onDayOf(now)
	return start, end, end.After(start)
}

// Trigger says in words what makes the entry due.
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

// Civil returns the fields that a clock on the wall shows at t.
func Civil(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// Problem is a part of the option that is not obeyed as it stands.
type Problem struct {
	Entry   string // its key; "" for the whole schedule
	Key     string // "" for the entry as a whole
	Refused bool   // the entry, or the whole schedule, does not run
	Text    string
}
