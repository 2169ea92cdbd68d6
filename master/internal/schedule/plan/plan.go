// Package plan computes when the entries of the master's option schedule are due, by the rules of
// Salt's scheduler (salt/utils/schedule.py Schedule.eval).
//
// [Read] parses the option into a [Plan] and reports every setting that it cannot follow.
// [Entry.Step] checks one entry once: from the entry's [State] and the time it computes the next
// State, and whether the entry runs now. Step is a pure function. So predicted runs, and runs after
// another master has taken over, are the same as the actual runs.
//
// All times are civil: date and time of day of the master's clock in its time zone, stored as a
// time.Time in time.UTC.
package plan

import (
	"slices"
	"time"

	"saltern/master/value"
)

// Tick is how often an entry is checked. A moment (of when or once) is missed if no check happens
// within window after it. Salt's master uses its option loop_interval as both tick and window. The
// checks of Salt's master are a little further apart than loop_interval, so Salt, too, makes at
// most one check within a window.
const (
	Tick   = time.Second
	window = Tick - time.Nanosecond
)

// Plan is the parsed option schedule.
type Plan struct {
	Enabled bool
	Entries []*Entry // in the order of the option

	option, whens *value.Map
}

// With returns the plan with further entries, and the problems of these. Settings of the option that
// apply to all entries apply to them, too. An entry whose key is in the option is left out.
func (p *Plan) With(further *value.Map) (*Plan, []Problem) {
	own := value.NewMap()
	for k, v := range further.All() {
		if _, taken := p.option.GetAny(k); !taken {
			own.Set(k, v)
		}
	}
	for _, key := range []string{enabledKey, splayKey, skipKey, skipFunKey} {
		if v, ok := p.option.Get(key); ok {
			own.Set(key, v)
		}
	}

	read, problems := Read(own, p.whens)
	problems = slices.DeleteFunc(problems, func(p Problem) bool { return p.Entry == "" }) // known already
	whole := *p
	whole.Entries = append(slices.Clone(p.Entries), read.Entries...)
	return &whole, problems
}

// Entry is one entry of a Plan.
type Entry struct {
	Key       string // key of the entry in the option
	Name      string // option name of the entry; without it, the key
	Digest    string // hash of all settings of the entry
	Saved     string // option saved: name of the saved job that the entry runs; "": none
	Fun       string
	Args      []any
	Kwargs    *value.Map // nil if there are none
	Enabled   bool
	DryRun    bool
	Unlimited bool // option jid_include is False: maxrunning does not apply
	Max       int  // option maxrunning: how many runs may be in progress at once

	// What to do with the result:
	Silent       bool // option return_job is False: fire no event
	Uncached     bool // option return_job is nocache: do not store the result in the job cache
	Returners    []string
	ReturnConfig any
	ReturnKwargs any
	Metadata     *value.Map // nil if there is none

	interval time.Duration // 0: when, once or cron determine when the entry is due
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
	skipFun      string // option skip_function: function that runs when Fun is skipped
	skipAt       []time.Time
	runAt        []time.Time
	until        *moment
	after        *moment
}

// splay bounds a random delay: low and high are seconds. The zero value means no delay.
type splay struct{ low, high int64 }

// span is a period of time that includes its start and its end.
type span struct{ start, end moment }

// onDayOf returns the start and end of the span, evaluated on the day of now. ok is false if the
// end is not after the start.
func (s *span) onDayOf(now time.Time) (start, end time.Time, ok bool) {
	start = s.start.onDayOf(now)
	end = s.end.onDayOf(now)
	return start, end, end.After(start)
}

// Trigger returns a short description of what makes the entry due.
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

// Civil returns t as a civil time, see the package comment.
func Civil(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// Problem is a part of the option that the master does not follow as written.
type Problem struct {
	Entry   string // key of the entry; "" if the problem concerns the schedule as a whole
	Key     string // key in the entry; "" if the problem concerns the whole entry
	Refused bool   // the entry, or the complete schedule, does not run
	Text    string
}
