package jobs

import (
	"bytes"
	"slices"
	"sync"
	"time"
)

// Limits of the held copies.
const (
	// heldFor is how long a copy waits to appear in the shared folder. A running master hands over
	// its records in less time.
	heldFor   = 2 * time.Minute
	heldBytes = 32 << 20
)

// held stores the copies of records that peers sent, until the records appear in the shared folder.
// If a record does not appear within heldFor, or its peer is lost, this master hands over the copy,
// since that peer may never run again. Overflow policy: the oldest copies are handed over early.
type held struct {
	mu    sync.Mutex
	list  []heldItem // oldest first; may contain copies that were dropped
	byKey map[heldKey]*record
	bytes int
}

type heldKey struct {
	kind    kind
	jid, id string
}

type heldItem struct {
	key    heldKey
	record *record
	from   string // peer that took the record; "" for a record of an earlier run
	at     time.Time
}

func newHeld() *held { return &held{byKey: map[heldKey]*record{}} }

func keyOf(r *record) heldKey { return heldKey{r.kind, r.jid, r.id} }

// put adds a copy of a peer's record and returns the copies that must be handed over because there
// are too many. peer is the peer that sent the copy.
func (h *held) put(now time.Time, peer string, r *record) (due []*record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := keyOf(r)
	if old := h.byKey[k]; old != nil {
		h.bytes -= old.size()
	}
	h.byKey[k] = r
	h.bytes += r.size()
	h.list = append(h.list, heldItem{k, r, peer, now})
	for h.bytes > heldBytes || len(h.list) > 4*len(h.byKey)+1024 {
		due = h.popLocked(due)
	}
	return due
}

func (h *held) popLocked(due []*record) []*record {
	i := h.list[0]
	h.list[0] = heldItem{}
	h.list = h.list[1:]
	if h.byKey[i.key] == i.record {
		delete(h.byKey, i.key)
		h.bytes -= i.record.size()
		due = append(due, i.record)
	}
	return due
}

// dropSeen drops the copy of a record that has appeared in the shared folder. It returns the copy, or nil if there was
// none. If there was, the record is in this master's cache, unless its origin fails. Masters may have different loads and
// lists of minions of a job, of which each has to be looked at; of a return one is enough. The load that a return has made
// need not be handed over beside the load of the job.
func (h *held) dropSeen(r *record) (copied *record) {
	h.mu.Lock()
	copied = h.byKey[keyOf(r)]
	h.mu.Unlock()
	if copied == nil {
		return nil
	}

	// Loads are decoded without the lock, for which the starts of jobs wait.
	isOther := r.kind == kindMinions && !bytes.Equal(copied.a, r.a) || r.kind == kindLoad && !isSameStart(copied.a, r.a)
	if isOther && (r.kind != kindLoad || !isFromReturn(copied.a)) {
		return nil
	}
	if !h.remove(copied) || isOther {
		return nil
	}
	return copied
}

// remove removes a copy, and reports whether it was still there: another one may have replaced it, or it was handed over.
func (h *held) remove(copied *record) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := keyOf(copied)
	if h.byKey[k] != copied {
		return false
	}
	delete(h.byKey, k)
	h.bytes -= copied.size()
	return true
}

// isSameStart reports whether two packed loads are of the same start of a job, or of two slices of a batch. They need not
// have the same bytes: a master announces fewer fields of a job than it stores. Of the loads that returns have made one
// is enough.
func isSameStart(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := decodeLoad(a), decodeLoad(b)
	_, isReturn := x.Get("return")
	_, isOtherReturn := y.Get("return")
	if isReturn || isOtherReturn {
		return isReturn && isOtherReturn
	}
	return x != nil && y != nil && Rank(x) == Rank(y) && Continues(x, y)
}

// popDue removes and returns the copies that are older than heldFor.
func (h *held) popDue(now time.Time) (due []*record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.list) > 0 && now.Sub(h.list[0].at) > heldFor {
		due = h.popLocked(due)
	}
	return due
}

// popPeer removes and returns the copies of one peer's records, oldest first.
func (h *held) popPeer(peer string) (due []*record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = slices.DeleteFunc(h.list, func(i heldItem) bool {
		if i.from != peer || h.byKey[i.key] != i.record {
			return false
		}
		delete(h.byKey, i.key)
		h.bytes -= i.record.size()
		due = append(due, i.record)
		return true
	})
	return due
}

// addJobsTo adds the ids of the jobs of the held copies to jids.
func (h *held) addJobsTo(jids map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.byKey {
		jids[k.jid] = true
	}
}

func (h *held) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byKey)
}
