package fleet

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/internal/printable"
	"saltern/master/history/summary"
)

const (
	maxNamed     = 50     // states that are named; the rest is otherStates
	minFailing   = 2      // minions on which a state must have failed to be named: one minion can invent an id for each run
	maxStateName = 128    // bytes of a function and an id
	maxCounted   = 50_000 // different states that are counted; further ones belong to otherStates
	countEvery   = 30 * time.Second
	atOnce       = 1000 // minions that are read under one lock

	// otherStates cannot be the name of a state, which has a blank after its function.
	otherStates = "other"
)

// failing counts minions by the states that failed in their last runs. A count is repeated after
// countEvery, because it reads the last runs of all minions.
type failing struct {
	mu   sync.Mutex
	at   time.Time // of the last count
	list []control.FailedState
}

// figures returns the states that failed on most minions.
func (f *failing) figures(t *Table, minions []string, now time.Time) []control.FailedState {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at.IsZero() || now.Sub(f.at).Abs() >= countEvery {
		f.at = now
		f.list = worstOf(t, minions)
	}
	return f.list
}

// worstOf counts the failed states of the last runs of minions, and returns the maxNamed most frequent
// ones of those that failed on minFailing minions, and the sum of the others.
func worstOf(t *Table, minions []string) []control.FailedState {
	counts := map[string]int{}
	total := 0
	for part := range slices.Chunk(minions, atOnce) {
		for _, packed := range t.failed(part) {
			s, err := summary.Parse(packed)
			if err != nil {
				continue // it is not what Append has written
			}
			total += s.Failed
			countFailed(counts, &s)
		}
	}

	maps.DeleteFunc(counts, func(_ string, minions int) bool { return minions < minFailing })
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var list []control.FailedState
	for _, name := range names[:min(len(names), maxNamed)] {
		list = append(list, control.FailedState{State: name, Minions: counts[name]})
		total -= counts[name]
	}
	if total > 0 {
		list = append(list, control.FailedState{State: otherStates, Minions: total})
	}
	return list
}

func countFailed(counts map[string]int, s *summary.Summary) {
	seen := map[string]bool{} // a name that is cut off may be that of several states
	for i := range s.FailedStates {
		state := &s.FailedStates[i]
		if state.ID == "" && state.Function == "" {
			continue // a text of a run that did not begin, or of a function that runs no states
		}
		name := printable.Clip(printable.Line(state.Function+" "+state.ID), maxStateName)
		_, known := counts[name]
		if seen[name] || !known && len(counts) >= maxCounted {
			continue
		}
		seen[name] = true
		counts[name]++
	}
}

// failed returns the packed summaries of the minions whose last run failed.
func (t *Table) failed(minions []string) (all [][]byte) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, minion := range minions {
		if e := t.entries[minion]; e != nil && e.run.JID != "" && e.run.Result == summary.Failed {
			all = append(all, e.packed) // a later run replaces it, and does not change it
		}
	}
	return all
}
