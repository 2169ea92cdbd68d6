package saved

import (
	"fmt"
	"strings"
	"time"

	"saltern/master/internal/schedule/plan"
	"saltern/master/value"
)

// Schedule is a schedule that is saved as an object: an entry of the option schedule.
type Schedule struct {
	Description string
	// Job is the name of the saved job that the entry runs, or "": it runs a runner function.
	Job string
	// Notes are the parts of the entry that do not count as written.
	Notes []string

	entry *value.Map // in the form of the option
	plan  *plan.Entry
}

const descriptionKey = "description"

func readSchedule(name string, settings *value.Map) (*Schedule, error) {
	f := newForm(settings)
	s := &Schedule{Description: f.description()}
	if f.err != nil {
		return nil, f.err
	}

	s.entry = settings.Clone()
	s.entry.Delete(descriptionKey)
	if _, given := s.entry.Get("name"); given {
		return nil, badf("a saved schedule has one name: leave out the setting name of the entry")
	}

	read, problems := plan.Read(value.NewMap(name, s.entry), nil)
	var refused []string
	for _, p := range problems {
		text := strings.TrimPrefix(fmt.Sprintf("%s: %s", p.Key, p.Text), ": ")
		if p.Refused {
			refused = append(refused, text)
		} else {
			s.Notes = append(s.Notes, text)
		}
	}
	switch {
	case len(refused) > 0:
		return nil, badf("%s", strings.Join(refused, "; "))
	case len(read.Entries) != 1:
		return nil, badf("%q has a meaning of its own in a schedule: choose another name", name)
	}

	s.plan = read.Entries[0]
	s.Job = s.plan.Saved
	return s, nil
}

// neverRuns reports whether the schedule is enabled and has no run: its times have passed, or range and
// skip_during_range leave none.
func (s *Schedule) neverRuns(now time.Time) bool {
	if !s.plan.Enabled || s.entry.Bool("run_on_start") {
		return false
	}
	alone := plan.Plan{Enabled: true}
	return len(alone.Upcoming(s.plan, plan.State{}, plan.Civil(now), 1)) == 0
}

// Schedules returns the saved schedules in the form of the option schedule, and when each was saved.
// The caller must not change the maps.
func (s *Objects) Schedules() (entries *value.Map, since map[string]time.Time) {
	return s.entries, s.since
}
