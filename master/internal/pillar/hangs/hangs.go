// Package hangs remembers on which work a program, or a file system, did not answer in time, so that
// the same work is left alone for a while: each try would hold a turn to its deadline.
package hangs

import (
	"cmp"
	"maps"
	"time"
)

const (
	// retryAfter is how long work is left alone after it did not end in time.
	retryAfter = 10 * time.Second
	// hangsOfAll is the default of Hangs.OfAll.
	hangsOfAll = 2
)

// Hangs holds the times until which work is left alone. Work has a key: what hangs for one key does
// not keep the others from their work, unless OfAll hang and none answers. The zero value is ready. It is
// not safe for concurrent use.
type Hangs[K comparable] struct {
	// OfAll is the number of hangs of different work, with no answer in between, after which all work
	// is left alone. 0 means two. Where more work than that is done at once, some of it may hang at
	// the same time although the rest does not.
	OfAll int

	ofKeys   map[K]time.Time // until when; those that are over go with the next hang
	ofAll    time.Time
	lastHang K
	hangs    int // since the last answer, of different keys
}

// NoteHang records that the work of a key did not end in time.
func (h *Hangs[K]) NoteHang(key K, now time.Time) {
	if h.ofKeys == nil {
		h.ofKeys = map[K]time.Time{}
	}
	maps.DeleteFunc(h.ofKeys, func(_ K, until time.Time) bool { return !now.Before(until) })
	h.ofKeys[key] = now.Add(retryAfter)

	if h.hangs == 0 || key != h.lastHang {
		h.hangs++
	}
	h.lastHang = key
	if h.hangs >= cmp.Or(h.OfAll, hangsOfAll) {
		h.ofAll = now.Add(retryAfter)
	}
}

// NoteAnswer records that some work has ended in time.
func (h *Hangs[K]) NoteAnswer() { h.hangs = 0 }

// IsResting reports whether the work of a key is to be left alone now.
func (h *Hangs[K]) IsResting(key K, now time.Time) bool {
	return now.Before(h.ofKeys[key]) || now.Before(h.ofAll)
}
