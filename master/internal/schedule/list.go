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
	known, err := s.knownStates()
	if err != nil {
		return control.Schedule{}, err
	}
	return s.listOf(known, maxRuns), nil
}

func (s *Schedule) listOf(known knowledge, maxRuns int) control.Schedule {
	now := s.cfg.Now()
	states := known.states
	list := control.Schedule{
		Enabled: known.plan.Enabled,
		Owner:   known.own,
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

		if !item.LastRun.IsZero() {
			item.LastJob = jobSince(known.jobOf(e), item.LastRun, now)
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

// knowledge holds what this master knows of the schedule.
type knowledge struct {
	roster
	states   []plan.State // of the entries
	own      bool         // this master owns the schedule
	recorded entryRecords // what the owner has recorded, if that is another master
}

// jobOf returns the id of the latest job that a run of the entry has started, or "".
func (k knowledge) jobOf(e *entry) string {
	if k.own {
		return e.knownJob()
	}
	if r := k.recorded[e.Key]; r.Digest == e.Digest {
		return r.Job
	}
	return ""
}

// knownStates returns what this master knows. If another master of the cluster owns the schedule, that
// is what the shared record says. Saved entries count at once, before the next check has adopted them.
func (s *Schedule) knownStates() (knowledge, error) {
	s.mu.Lock()
	known := knowledge{roster: s.roster, states: slices.Clone(s.states)}
	s.mu.Unlock()
	if s.cfg.Saved != nil {
		if saved := s.cfg.Saved.Schedules(); known.isNewer(saved) {
			known.roster, known.states, _ = s.withSaved(known.roster, known.states, saved)
		}
	}

	_, known.own = s.cfg.Own()
	if s.cfg.Records != nil && !known.own {
		r, err := s.cfg.Records.loadNewest()
		known.states = known.statesOf(r)
		known.recorded = r.Entries
		return known, err
	}
	return known, nil
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
	known, err := s.knownStates()
	if err != nil {
		return nil, err
	}
	list := s.listOf(known, count)
	out := make(map[string][]time.Time, len(list.Entries))
	for i, e := range known.entries {
		out[e.Key] = list.Entries[i].Next
	}
	return out, nil
}
