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

// The places of a node.
const (
	Data   Place = "data"   // its data directory
	Bricks Place = "bricks" // the directory of its copies of the shared volume
)

const (
	// maxStarts is how many starts a history has.
	maxStarts = 64
	// rememberedStarts is how many of them the others remember.
	rememberedStarts = 8
	// maxNumber bounds counts and generations from elsewhere. One every second in the life of a
	// machine is far less, and a value at the bound can still be raised.
	maxNumber = 1 << 48
)

// Start is one start of a node: the highest count that it has raised until the next one.
type Start struct {
	ID   string `json:"id"` // chance: two machines that go on from one snapshot differ
	Last uint64 `json:"last"`
}

// History is the count of a place. The zero value belongs to a place that was never counted.
type History struct {
	// Generation is raised when the place is given up and filled from other nodes. What others
	// remember of earlier generations does not count any more.
	Generation uint64 `json:"generation,omitempty"`
	// Forgotten is the highest count of the starts that are not listed any more.
	Forgotten uint64 `json:"forgotten,omitempty"`
	// Starts are the newest ones, the oldest of them first.
	Starts []Start `json:"starts,omitempty"`
	// At is the time of the newest count, by the node's own clock.
	At time.Time `json:"at,omitzero"`
}

// IsZero reports whether the place has never been counted.
func (h History) IsZero() bool { return len(h.Starts) == 0 && h.Generation == 0 }

// Count is the highest count.
func (h History) Count() uint64 {
	count := h.Forgotten
	for _, s := range h.Starts {
		count = max(count, s.Last)
	}
	return count
}

// Running is the newest start; "" before the first.
func (h History) Running() string {
	if len(h.Starts) == 0 {
		return ""
	}
	return h.Starts[len(h.Starts)-1].ID
}

// Raise returns h with the next count. id names the start that makes it.
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

// Renew returns the history of a place that is filled again. Nothing that others remember so far
// makes it look old.
func (h History) Renew(remembered History) History {
	return History{Generation: max(h.Generation, remembered.Generation) + 1, At: h.At}
}

// lastCount returns the highest count of a start. ok is false if the start is not in the history.
func (h History) lastCount(id string) (uint64, bool) {
	for _, s := range h.Starts {
		if s.ID == id {
			return s.Last, true
		}
	}
	return 0, false
}

// Behind reports whether the place lacks something that others remember of it, i.e. whether it
// was put back.
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

// Merge returns the common memory of two histories of a place.
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

// remembered returns the part of h that others keep: the newest starts, in one order on
// all nodes.
func (h History) remembered() History {
	starts := slices.Clone(h.Starts)
	slices.SortFunc(starts, func(a, b Start) int {
		return cmp.Or(cmp.Compare(a.Last, b.Last), cmp.Compare(a.ID, b.ID))
	})
	starts = starts[max(0, len(starts)-rememberedStarts):]
	return History{Generation: h.Generation, Starts: starts, At: h.At}
}

var startID = regexp.MustCompile(`^[A-Za-z0-9]{1,40}$`)

// Check returns what is wrong with a history from elsewhere, or nil.
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
