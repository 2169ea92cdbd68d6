package publish

import (
	"slices"
	"sync"
	"time"

	"saltern/master/crypt"
	"saltern/master/value"
)

// Recent is a stored publish. Its fields are shared and must not be changed.
type Recent struct {
	At   time.Time // time at which this master last published it
	Born time.Time // time at which any master first published it
	// Passed is the number of other publications between Born and At, if this master published it
	// late.
	Passed  int
	JID     string
	Load    *value.Map // load that was passed to Publish
	Matched []string
	// payload is the message as it was sent, encrypted with key. It is stored only if the message
	// has no serial, because only such a message may be sent again unchanged.
	payload []byte
	key     crypt.Key
	size    int
	seq     uint64
}

// history stores recent publishes. Overflow policy: the oldest publishes are dropped while there
// are more than count, while their payloads have more than bytes in total, or while they are older
// than age. If the newest publish alone exceeds bytes, it is dropped at once.
type history struct {
	count int
	age   time.Duration
	bytes int

	mu   sync.Mutex
	list []Recent
	used int
	seq  uint64
}

// addRecent stores r. Calling forget removes r again.
func (h *history) addRecent(r Recent) (forget func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	r.seq = h.seq
	h.list = append(h.list, r)
	h.used += r.size
	h.dropOld(r.At)
	return func() { h.remove(r.seq) }
}

func (h *history) remove(seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = slices.DeleteFunc(h.list, func(r Recent) bool {
		if r.seq != seq {
			return false
		}
		h.used -= r.size
		return true
	})
}

// dropOld drops the publishes that exceed the bounds. The caller holds h.mu.
func (h *history) dropOld(now time.Time) {
	n := 0
	for n < len(h.list) && (len(h.list)-n > h.count || h.used > h.bytes || now.Sub(h.list[n].At) > h.age) {
		h.used -= h.list[n].size
		n++
	}
	clear(h.list[:n])
	h.list = h.list[n:]
	if len(h.list) == 0 {
		h.list = nil
	}
}

func (h *history) recentSince(t, now time.Time) []Recent {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropOld(now)
	for i, r := range h.list {
		if !r.At.Before(t) {
			return append([]Recent(nil), h.list[i:]...)
		}
	}
	return nil
}
