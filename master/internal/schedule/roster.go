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

// isNewer reports whether saved has other entries than those of the roster.
func (r roster) isNewer(saved SavedEntries) bool {
	none := saved.Entries.Len() == 0 && r.saved.Entries.Len() == 0
	return saved.Version != r.saved.Version && !none && !value.Equal(saved.Entries, r.saved.Entries)
}

// withSaved returns the roster with other saved entries, and the states of its entries. states are those of r. An
// entry that is the same as before keeps its state, and one of the same key its tally. fresh are the positions of
// the others.
func (s *Schedule) withSaved(r roster, states []plan.State, saved SavedEntries) (next roster, of []plan.State, fresh []int) {
	read, problems := s.cfg.Plan.With(saved.Entries)
	next = newRoster(read, append(problems, s.cfg.Problems...))
	next.saved = saved
	of = make([]plan.State, len(next.entries))

	before := map[string]int{}
	for i, e := range r.entries {
		before[e.Key] = i
	}
	for i, e := range next.entries {
		if since, ok := saved.Since[e.Key]; ok {
			e.since = plan.Civil(since.In(s.cfg.Now().Location()))
		}

		was, known := before[e.Key]
		if known {
			e.tally = r.entries[was].tally
		}
		if known && r.entries[was].Digest == e.Digest {
			of[i] = states[was]
		} else {
			fresh = append(fresh, i)
		}
	}
	return next, of, fresh
}

// adoptSaved makes changes of the saved entries count. An entry that another master has run already gets the
// state that is recorded, and a changed one begins anew. Only takeDue calls it.
func (s *Schedule) adoptSaved() {
	if s.cfg.Saved == nil {
		return
	}
	saved := s.cfg.Saved.Schedules()
	if !s.isNewer(saved) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.saved = saved
		return
	}

	next, states, fresh := s.withSaved(s.roster, s.states, saved)
	for _, i := range fresh {
		if carried, ok := s.takeCarried(next.entries[i]); ok {
			states[i] = carried
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.roster = next
	s.states = states
}
