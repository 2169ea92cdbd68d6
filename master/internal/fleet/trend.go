package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"saltern/master/history/summary"
)

// Trend is the state of all minions by the table alone, without the history.
type Trend struct {
	Minions int // with an accepted key
	Last    map[summary.Result]int
	Never   int // minions that have run no states
	Days    []DayCount
	Worst   []StateSpread // states that failed in the last runs of most minions
	Slowest []StateSpread // states that took longest in the last runs
	Drift   []Drifted     // of the last runs, the latest first
	Drifted int           // minions whose last run found drift
}

// DayCount has the minions by what they did on a day.
type DayCount struct {
	Day      time.Time              // its begin, in UTC
	Results  map[summary.Result]int // minions by the worst result of their runs of states
	Answered int                    // minions that ran no states, but answered
	Absent   int                    // minions that answered nothing
}

// StateSpread is a state and the minions whose last run had it.
type StateSpread struct {
	ID, Function string
	Minions      int
	Minion       string // one of them: where it is slowest, or the first by name
	Comment      string
	Longest      time.Duration
}

// Bounds of a trend.
const (
	maxWorst   = 10  // failed and slow states that are listed
	maxDrifted = 100 // drifted states that are listed
)

// An answer of Trend is valid for trendFor, or for trendShare times as long as it took to make, so that
// many callers take a tenth of one CPU.
const (
	trendFor   = 2 * time.Second
	trendShare = 10
	trendMost  = time.Minute // a clock that jumps does not keep an answer for longer
)

// Trend returns the state of all minions. Calls soon after each other share an answer, which the caller
// must not change.
func (f *Fleet) Trend() *Trend {
	f.trend.mu.Lock()
	defer f.trend.mu.Unlock()
	now := f.now()
	age := now.Sub(f.trend.made)
	if f.trend.latest == nil || age < 0 || age >= min(max(trendFor, trendShare*f.trend.took), trendMost) {
		all, daysFrom := f.recorder.table.snapshot(f.accepted())
		f.trend.latest = trendOf(all, daysFrom, now)
		f.trend.made = now
		f.trend.took = f.now().Sub(now)
	}
	return f.trend.latest
}

// trendOf makes the trend until now of minions, sorted by id.
func trendOf(all []snapshot, daysFrom int32, now time.Time) *Trend {
	out := &Trend{Minions: len(all), Last: map[summary.Result]int{}}
	failed, slow := spreads{}, spreads{}
	for i := range all {
		one := &all[i]
		if one.run.JID == "" {
			out.Never++
			continue
		}

		s := one.summary()
		out.Last[one.run.Result]++
		for _, state := range s.FailedStates {
			failed.add(one.minion, &state)
		}
		for _, state := range s.Slowest {
			slow.add(one.minion, &state)
		}
		out.addDrift(one, &s)
	}

	out.Worst = failed.most(func(a, b *StateSpread) int { return b.Minions - a.Minions })
	out.Slowest = slow.most(func(a, b *StateSpread) int { return cmp.Compare(b.Longest, a.Longest) })
	slices.SortStableFunc(out.Drift, func(a, b Drifted) int { return b.Time.Compare(a.Time) })
	out.Drift = out.Drift[:min(len(out.Drift), maxDrifted)]
	out.Days = daysOf(all, daysFrom, now)
	return out
}

func (t *Trend) addDrift(one *snapshot, s *summary.Summary) {
	drifted := s.Drifted()
	if len(drifted) > 0 {
		t.Drifted++
	}
	for _, state := range drifted {
		t.Drift = append(t.Drift, Drifted{
			Minion:    one.minion,
			JID:       one.run.JID,
			User:      one.run.User,
			Time:      one.run.Time,
			State:     state,
			Corrected: !s.Test,
			Revision:  s.Revision,
		})
	}
}

// spreads are the states of runs by function and id, at most maxStates of them. Overflow policy: further
// states are left out.
type spreads map[string]*StateSpread

// add counts a state of the last run of a minion. The minions come in the order of their names.
func (all spreads) add(minion string, s *summary.State) {
	if s.ID == "" {
		return // a text of a run that did not begin
	}

	name := s.Function + " " + s.ID
	one := all[name]
	if one == nil {
		if len(all) >= maxStates {
			return
		}
		one = &StateSpread{
			ID:       s.ID,
			Function: s.Function,
			Minion:   minion,
			Comment:  s.Comment,
			Longest:  s.Duration,
		}
		all[name] = one
	}

	one.Minions++ // a second state of this id and function in one run counts again; they are rare
	if s.Duration > one.Longest {
		one.Longest = s.Duration
		one.Minion = minion
	}
}

// most returns the first maxWorst states in an order; equal ones by name.
func (all spreads) most(order func(a, b *StateSpread) int) (out []StateSpread) {
	var list []*StateSpread
	for _, one := range all {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b *StateSpread) int {
		return cmp.Or(order(a, b), strings.Compare(a.ID, b.ID), strings.Compare(a.Function, b.Function))
	})
	for _, one := range list[:min(len(list), maxWorst)] {
		out = append(out, *one)
	}
	return out
}

// daysOf counts the minions by what they did on each day until now. It begins with the first day on which
// one of them answered.
func daysOf(all []snapshot, daysFrom int32, now time.Time) (out []DayCount) {
	today := dayOf(now)
	for number := max(today-keptDays+1, min(daysFrom, today)); number <= today; number++ {
		count := DayCount{Day: dayStart(number), Results: map[summary.Result]int{}}
		for i := range all {
			switch result := all[i].days.on(number); result {
			case absent:
				count.Absent++
			case answered:
				count.Answered++
			default:
				count.Results[summary.Result(result-answered-1)]++
			}
		}
		if len(out) > 0 || count.Absent < len(all) {
			out = append(out, count)
		}
	}
	return out
}
