package schedule

import (
	"time"

	"saltern/master/internal/schedule/plan"
	"saltern/master/value"
)

// SavedEntries are entries that are not in the option, but saved for all masters.
type SavedEntries struct {
	Version uint64 // changes with each change of the entries
	Entries *value.Map
	Since   map[string]time.Time // when each entry was saved
}

// Saved holds the saved entries.
type Saved interface {
	// Schedules returns the entries of now. It does not access the disk.
	Schedules() SavedEntries
}

// roster is the entries that run, and the problems of others. It is not changed once it is made.
type roster struct {
	plan     *plan.Plan
	problems []plan.Problem
	entries  []*entry
	saved    SavedEntries
}

func newRoster(p *plan.Plan, problems []plan.Problem) roster {
	r := roster{plan: p, problems: problems}
	for _, e := range p.Entries {
		r.entries = append(r.entries, &entry{Entry: e, tally: &tally{}})
	}
	return r
}

// adoptSaved makes changes of the saved entries count. An entry that is the same as before keeps its
// state, one that another master has run already gets the state that is recorded, and a changed one
// begins anew. Only takeDue calls it.
func (s *Schedule) adoptSaved() {
	if s.cfg.Saved == nil {
		return
	}
	saved := s.cfg.Saved.Schedules()
	if saved.Version == s.saved.Version {
		return
	}
	none := saved.Entries.Len() == 0 && s.saved.Entries.Len() == 0
	if none || value.Equal(saved.Entries, s.saved.Entries) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.saved = saved
		return
	}

	read, problems := s.cfg.Plan.With(saved.Entries)
	next := newRoster(read, append(problems, s.cfg.Problems...))
	next.saved = saved
	states := make([]plan.State, len(next.entries))
	before := map[string]int{}
	for i, e := range s.entries {
		before[e.Key] = i
	}
	for i, e := range next.entries {
		if since, ok := saved.Since[e.Key]; ok {
			e.since = plan.Civil(since.In(s.cfg.Now().Location()))
		}

		was, known := before[e.Key]
		if known {
			e.tally = s.entries[was].tally
		}
		if known && s.entries[was].Digest == e.Digest {
			states[i] = s.states[was]
		} else if carried, ok := s.takeCarried(e); ok {
			states[i] = carried
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.roster = next
	s.states = states
}
