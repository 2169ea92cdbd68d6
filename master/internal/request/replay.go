package request

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/value"
)

// replays stores the answers to requests with a lasting effect, by minion and nonce. A minion that
// repeats a request because the answer was lost receives the stored answer. A request that an
// attacker replays has no effect.
//
// Overflow policy: an answer is dropped after window. The oldest answers are dropped earlier if
// there are more than size answers, or if the answers take more than maxReplayBytes.
type replays struct {
	mu     sync.Mutex
	window time.Duration
	size   int
	byKey  map[replayKey]*list.Element
	order  *list.List
	bytes  int // memory of the measured answers
	// fresh holds the entries whose answers are not measured yet. There are about as many of them
	// as requests in progress.
	fresh []*replayEntry
}

// maxReplayBytes bounds the memory of stored answers, because a minion can cause large answers.
const maxReplayBytes = 64 << 20

type replayKey struct{ id, nonce string }

type replayEntry struct {
	key   replayKey
	at    time.Time
	done  chan struct{}
	value any
	err   error
	bytes int
	gone  bool

	sharers atomic.Int32 // number of callers that wait for done to close
}

func newReplays(size int, window time.Duration) *replays {
	return &replays{window: window, size: size, byKey: map[replayKey]*list.Element{}, order: list.New()}
}

// claimEntry returns the entry of a request. If the second result is true, the caller must execute
// the request and close done. Otherwise the caller waits until done is closed, and uses value and
// err.
func (r *replays) claimEntry(id, nonce string, now time.Time) (*replayEntry, bool) {
	k := replayKey{id, nonce}
	r.mu.Lock()
	defer r.mu.Unlock()

	r.weighAnswers()
	for e := r.order.Front(); e != nil; e = r.order.Front() {
		old := e.Value.(*replayEntry)
		if r.order.Len() < r.size && now.Sub(old.at) < r.window && r.bytes <= maxReplayBytes {
			break
		}
		r.remove(e)
	}

	if e, ok := r.byKey[k]; ok {
		return e.Value.(*replayEntry), false
	}

	entry := &replayEntry{key: k, at: now, done: make(chan struct{})}
	r.byKey[k] = r.order.PushBack(entry)
	r.fresh = append(r.fresh, entry)
	return entry, true
}

func (r *replays) remove(e *list.Element) {
	old := e.Value.(*replayEntry)
	r.order.Remove(e)
	delete(r.byKey, old.key)
	r.bytes -= old.bytes
	old.gone = true
}

// weighAnswers measures the answers that were stored since the last call.
func (r *replays) weighAnswers() {
	r.fresh = slices.DeleteFunc(r.fresh, func(e *replayEntry) bool {
		if e.gone {
			return true
		}
		select {
		case <-e.done:
			e.bytes = weight(e.value)
			r.bytes += e.bytes
			return true
		default:
			return false
		}
	})
}

// weight returns the approximate size of a value in memory, in bytes.
func weight(v any) int {
	const word = 16
	switch v := v.(type) {
	case string:
		return word + len(v)
	case []byte:
		return word + len(v)
	case []any:
		n := word
		for _, x := range v {
			n += word + weight(x)
		}
		return n
	case []string:
		n := word
		for _, x := range v {
			n += word + len(x)
		}
		return n
	case *value.Map:
		n := word
		for k, x := range v.All() {
			n += 4*word + weight(k) + weight(x)
		}
		return n
	case Plain:
		return weight(v.Payload)
	}

	return word
}

// forget drops the entry of a failed request, so that the request can be executed again.
func (r *replays) forget(entry *replayEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.byKey[entry.key]; ok && e.Value == entry {
		r.remove(e)
	}
}
