package marks

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Place is a part of a node's disk that is put back as a whole.
type Place string

// Values of Place.
const (
	Data   Place = "data"   // the node's data directory
	Bricks Place = "bricks" // the directory of the node's copies of the shared volume
)

const (
	// maxStarts is the largest number of starts that a history lists.
	maxStarts = 64
	// rememberedStarts is how many of the newest starts other nodes remember.
	rememberedStarts = 8
	// maxNumber is the largest count or generation that a node accepts from other nodes. A machine
	// that raises a count every second never reaches maxNumber. A count that has the value
	// maxNumber can still be raised.
	maxNumber = 1 << 48
)

// Start is one start of a node, with the highest count during that start.
type Start struct {
	ID   string `json:"id"` // random, so that two machines that continue from one snapshot differ
	Last uint64 `json:"last"`
}

// History is the state of the counter of one place. Each start of the node continues the counter.
// The zero value belongs to a place that was never counted.
type History struct {
	// Generation is raised when the place is set aside and filled from other nodes. Counts that
	// other nodes remember from earlier generations are then no longer compared.
	Generation uint64 `json:"generation,omitempty"`
	// Forgotten is the highest count of the starts that are no longer listed.
	Forgotten uint64 `json:"forgotten,omitempty"`
	// Starts lists the newest starts, the oldest of them first.
	Starts []Start `json:"starts,omitempty"`
	// At is the time of the newest count, by the node's own clock.
	At time.Time `json:"at,omitzero"`
}

// IsZero reports whether the place has never been counted.
func (h History) IsZero() bool { return len(h.Starts) == 0 && h.Generation == 0 }

// Count returns the highest count.
func (h History) Count() uint64 {
	count := h.Forgotten
	for _, s := range h.Starts {
		count = max(count, s.Last)
	}
	return count
}

// Running returns the ID of the newest start, or "" before the first.
func (h History) Running() string {
	if len(h.Starts) == 0 {
		return ""
	}
	return h.Starts[len(h.Starts)-1].ID
}

// Raise returns h with the next count. id identifies the start that raises it.
func (h History) Raise(id string, now time.Time) History {
	next := h
	next.At = now
	next.Starts = slices.Clone(h.Starts)
	if h.Running() != id {
		next.Starts = append(next.Starts, Start{ID: id})
	}
	next.Starts[len(next.Starts)-1].Last = h.Count() + 1

	if extra := len(next.Starts) - maxStarts; extra > 0 {
		next.Forgotten = max(next.Forgotten, next.Starts[extra-1].Last)
		next.Starts = slices.Delete(next.Starts, 0, extra)
	}
	return next
}

// Renew returns the history for a place that other nodes are about to fill again. The history has a
// higher generation than all that other nodes remember, so that the place does not look old.
func (h History) Renew(remembered History) History {
	return History{Generation: max(h.Generation, remembered.Generation) + 1, At: h.At}
}

// lastCount returns the highest count of a start. It returns false if the start is not in the
// history.
func (h History) lastCount(id string) (uint64, bool) {
	for _, s := range h.Starts {
		if s.ID == id {
			return s.Last, true
		}
	}
	return 0, false
}

// Behind reports whether the place was put back: whether other nodes remember a count or generation
// that h lacks.
func (h History) Behind(remembered History) bool {
	switch {
	case remembered.IsZero() || h.Generation > remembered.Generation:
		return false
	case h.IsZero() || h.Generation < remembered.Generation:
		return true
	}
	return slices.ContainsFunc(remembered.Starts, func(s Start) bool {
		have, listed := h.lastCount(s.ID)
		return s.Last > h.Forgotten && (!listed || have < s.Last)
	})
}

// Merge returns one history with the content of h and other, which belong to the same place.
func (h History) Merge(other History) History {
	switch {
	case other.Generation > h.Generation || h.IsZero():
		return other.remembered()
	case other.Generation < h.Generation || other.IsZero():
		return h.remembered()
	}

	merged := History{Generation: h.Generation, At: h.At}
	if other.At.After(h.At) {
		merged.At = other.At
	}

	merged.Starts = slices.Clone(h.Starts)
	for _, s := range other.Starts {
		i := slices.IndexFunc(merged.Starts, func(m Start) bool { return m.ID == s.ID })
		if i < 0 {
			merged.Starts = append(merged.Starts, s)
			continue
		}
		merged.Starts[i].Last = max(merged.Starts[i].Last, s.Last)
	}

	return merged.remembered()
}

// remembered returns the part of h that other nodes remember: the newest starts, in the same order
// on all nodes.
func (h History) remembered() History {
	starts := slices.Clone(h.Starts)
	slices.SortFunc(starts, func(a, b Start) int {
		return cmp.Or(cmp.Compare(a.Last, b.Last), cmp.Compare(a.ID, b.ID))
	})
	starts = starts[max(0, len(starts)-rememberedStarts):]
	return History{Generation: h.Generation, Starts: starts, At: h.At}
}

var startID = regexp.MustCompile(`^[A-Za-z0-9]{1,40}$`)

// Check returns an error if a history from another node is malformed or beyond the bounds.
func (h History) Check() error {
	if len(h.Starts) > maxStarts {
		return fmt.Errorf("mark: %d starts, at most %d", len(h.Starts), maxStarts)
	}
	if h.Generation > maxNumber || h.Count() > maxNumber {
		return fmt.Errorf("mark: number %d of generation %d is above all that can be", h.Count(), h.Generation)
	}

	seen := map[string]bool{}
	for _, s := range h.Starts {
		if !startID.MatchString(s.ID) || seen[s.ID] {
			return fmt.Errorf("mark: start %.40q is no id, or is there twice", s.ID)
		}
		seen[s.ID] = true
	}

	return nil
}
