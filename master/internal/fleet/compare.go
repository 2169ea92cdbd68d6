package fleet

import (
	"hash/fnv"
	"slices"
	"time"

	"saltern/master/history"
	"saltern/master/history/summary"
)

// compare sets the cause of each state that changed or would change something, by comparing a run with
// the one before of the same states. scope 0 means that the run cannot be compared.
func (t *Table) compare(run *history.Run, scope uint64, now time.Time) {
	s := &run.Summary
	if len(s.ChangedStates) == 0 {
		return
	}

	t.mu.RLock()
	defer t.mu.RUnlock()
	before := t.baselineOf(run, scope, now)
	for i := range s.ChangedStates {
		s.ChangedStates[i].Cause = before.causeOf(&s.ChangedStates[i], s.Revision)
	}
}

// baselineOf returns the run with which a run is compared, or nil. A run of a master whose clock was ahead
// is none: nobody knows whether it was before this one.
func (t *Table) baselineOf(run *history.Run, scope uint64, now time.Time) *baseline {
	e := t.entries[run.Minion]
	if e == nil || scope == 0 {
		return nil
	}
	order := orderOf(run.JID, run.Time)
	for i := range e.baselines {
		b := &e.baselines[i]
		unsure := isAhead(b.order, now) && !isAhead(order, now)
		if b.scope == scope && b.order < order && !unsure {
			return b
		}
	}
	return nil
}

// causeOf returns why a state changed something. b may be nil: there is no run to compare with.
func (b *baseline) causeOf(s *summary.State, revision string) summary.Cause {
	switch {
	case b == nil || b.revision == 0 || revision == "":
		return summary.Unknown
	case b.revision != hashRevision(revision):
		return summary.NewFiles
	case slices.Contains(b.touched, touchedBy(s, true)): // it failed in the run before
		return summary.Unknown
	case slices.Contains(b.touched, touchedBy(s, false)):
		return summary.Recurring
	case b.partial: // it may be a failed state that was not remembered
		return summary.Unknown
	}
	return summary.Drift
}

// hashRevision returns the hash of a revision, or 0 for "".
func hashRevision(revision string) uint64 {
	if revision == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(revision)) // never fails
	return max(h.Sum64(), 1)
}

func hashState(s *summary.State) uint32 {
	h := fnv.New32a()
	for _, part := range []string{s.ID, s.Name, s.Function} {
		_, _ = h.Write([]byte(part)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum32()
}
