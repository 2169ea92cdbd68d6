package jobs

import (
	"slices"
	"sync"
	"time"
)

// bounds of copies that are held.
const (
	// heldFor is longer than a living master needs to hand a record over.
	heldFor   = 2 * time.Minute
	heldBytes = 32 << 20
)

// held remembers the copies that peers have sent until they are seen in the
// shared folder. What does not show up there in time, or whose peer is lost, is
// handed over by this master: the one that took it may be gone for good. Overflow
// policy: the oldest are handed over early.
type held struct {
	mu    sync.Mutex
	list  []heldItem // oldest first; may hold what was dropped already
	live  map[heldKey]*record
	bytes int
}

type heldKey struct {
	kind    kind
	jid, id string
}

type heldItem struct {
	key  heldKey
	rec  *record
	from string // the peer that took it; "" after a restart
	at   time.Time
}

func newHeld() *held { return &held{live: map[heldKey]*record{}} }

func keyOf(r *record) heldKey { return heldKey{r.kind, r.jid, r.id} }

// put holds a record of a peer and gives those that are due because there is no room.
func (h *held) put(now time.Time, from string, r *record) (due []*record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := keyOf(r)
	if old := h.live[k]; old != nil {
		h.bytes -= old.size()
	}
	h.live[k] = r
	h.bytes += r.size()
	h.list = append(h.list, heldItem{k, r, from, now})
	for h.bytes > heldBytes || len(h.list) > 4*len(h.live)+1024 {
		due = h.popLocked(due)
	}
	return due
}

func (h *held) popLocked(due []*record) []*record {
	i := h.list[0]
	h.list[0] = heldItem{}
	h.list = h.list[1:]
	if h.live[i.key] == i.rec {
		delete(h.live, i.key)
		h.bytes -= i.rec.size()
		due = append(due, i.rec)
	}
	return due
}

// seen drops a record that is in the shared folder and reports whether it was
// held, and so is in this master's cache.
func (h *held) seen(r *record) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := keyOf(r)
	old := h.live[k]
	if old == nil {
		return false
	}
	delete(h.live, k)
	h.bytes -= old.size()
	return true
}

// due gives what was held for too long.
func (h *held) due(now time.Time) (due []*record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.list) > 0 && now.Sub(h.list[0].at) > heldFor {
		due = h.popLocked(due)
	}
	return due
}

// of gives what is held of one peer, oldest first.
func (h *held) of(peer string) (due []*record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = slices.DeleteFunc(h.list, func(i heldItem) bool {
		if i.from != peer || h.live[i.key] != i.rec {
			return false
		}
		delete(h.live, i.key)
		h.bytes -= i.rec.size()
		due = append(due, i.rec)
		return true
	})
	return due
}

// jobs adds the jobs of which a copy is held.
func (h *held) jobs(to map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.live {
		to[k.jid] = true
	}
}

func (h *held) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.live)
}
