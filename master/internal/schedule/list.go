package schedule

import (
	"fmt"
	"slices"
	"time"

	"saltern/internal/control"
	"saltern/master/internal/schedule/plan"
)

// maxListed is how many future runs are listed for each entry.
const maxListed = 100

// List returns the entries, each with at most maxRuns of its next runs.
func (s *Schedule) List(maxRuns int) (control.Schedule, error) {
	known, states, own, err := s.knownStates()
	if err != nil {
		return control.Schedule{}, err
	}
	return s.listOf(known, states, own, maxRuns), nil
}

func (s *Schedule) listOf(known roster, states []plan.State, own bool, maxRuns int) control.Schedule {
	now := s.cfg.Now()
	list := control.Schedule{
		Enabled: known.plan.Enabled,
		Owner:   own,
		Entries: []control.ScheduleEntry{},
	}

	names := known.listedNames()
	for i, e := range known.entries {
		item := control.ScheduleEntry{
			Name:     names[i],
			Function: e.Fun,
			Trigger:  e.Trigger(),
			Enabled:  e.Enabled && known.plan.Enabled,
			DryRun:   e.DryRun,
			Running:  int(e.running.Load()),
			LastRun:  localTime(states[i].LastRun, now),
			Skipped:  states[i].Skipped,
			Next:     []time.Time{},
		}

		if own {
			item.LastJob = e.jobSince(item.LastRun)
		}

		if item.Skipped == "" && item.LastRun.IsZero() && e.Passed(plan.Civil(now)) {
			item.Skipped = "once_has_passed"
		}

		for _, run := range known.plan.Upcoming(e.Entry, states[i], plan.Civil(now), min(maxRuns, maxListed)) {
			item.Next = append(item.Next, localTime(run.At, now))
		}

		list.Entries = append(list.Entries, item)
	}

	for _, p := range known.problems {
		if p.Refused {
			list.Refused = append(list.Refused, control.ScheduleProblem{Entry: p.Entry, Key: p.Key, Text: p.Text})
		}
	}

	return list
}

// listedNames returns the names of the entries for a list, in their order. It adds the key to a
// name that several entries have, refused ones included.
func (r roster) listedNames() []string {
	count := map[string]int{}
	for _, p := range r.problems {
		if p.Refused {
			count[p.Entry]++
		}
	}
	for _, e := range r.entries {
		count[e.Name]++
	}

	names := make([]string, len(r.entries))
	for i, e := range r.entries {
		names[i] = e.Name
		if count[e.Name] > 1 && e.Name != e.Key {
			names[i] = fmt.Sprintf("%s (%s)", e.Name, e.Key)
		}
	}
	return names
}

// knownStates returns the entries and their states. owner reports whether this master owns the
// schedule. If another master of the cluster owns the schedule, the states are those in the shared
// record.
func (s *Schedule) knownStates() (known roster, states []plan.State, owner bool, err error) {
	s.mu.Lock()
	known = s.roster
	states = slices.Clone(s.states)
	s.mu.Unlock()

	_, owner = s.cfg.Own()
	if s.cfg.Records != nil && !owner {
		r, err := s.cfg.Records.loadNewest()
		return known, known.statesOf(r), false, err
	}
	return known, states, owner, nil
}

// localTime returns the time at which the clock in the time zone of now shows civil. For the zero
// time it returns the zero time.
func localTime(civil, now time.Time) time.Time {
	if civil.IsZero() {
		return civil
	}
	return time.Date(civil.Year(), civil.Month(), civil.Day(), civil.Hour(), civil.Minute(), civil.Second(),
		0, now.Location())
}

// NextRuns returns the next runs of each entry by its key, at most count of each.
func (s *Schedule) NextRuns(count int) (map[string][]time.Time, error) {
	known, states, own, err := s.knownStates()
	if err != nil {
		return nil, err
	}
	list := s.listOf(known, states, own, count)
	out := make(map[string][]time.Time, len(list.Entries))
	for i, e := range known.entries {
		out[e.Key] = list.Entries[i].Next
	}
	return out, nil
}
