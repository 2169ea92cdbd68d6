package fleet

import (
	"hash/fnv"
	"slices"

	"saltern/master/history"
	"saltern/master/history/summary"
)

// compare sets the cause of each state that changed or would change something, by comparing a run with
// the one before of the same states. scope 0 means that the run cannot be compared.
func (t *Table) compare(run *history.Run, scope uint64) {
	if len(run.Summary.ChangedStates) == 0 {
		return
	}

	t.mu.RLock()
	defer t.mu.RUnlock()
	t.entries[run.Minion].baselineOf(scope, orderOf(run.JID, run.Time)).explain(&run.Summary)
}

// baselineOf returns the latest baseline of some states before an order, or nil. e may be nil.
func (e *entry) baselineOf(scope uint64, order string) *baseline {
	if e == nil || scope == 0 {
		return nil
	}
	var found *baseline
	for i := range e.baselines {
		b := &e.baselines[i]
		if b.scope == scope && b.order < order && (found == nil || b.order > found.order) {
			found = b
		}
	}
	return found
}

// explain sets the causes of a run that is compared with b, which may be nil. It reports whether it has changed one.
func (b *baseline) explain(s *summary.Summary) (changed bool) {
	for i := range s.ChangedStates {
		state := &s.ChangedStates[i]
		cause := b.causeOf(state, s.Revision)
		changed = changed || cause != state.Cause
		state.Cause = cause
	}
	return changed
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
