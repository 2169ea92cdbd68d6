package request

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/value"
)

// replays remembers the answers to requests with a lasting effect, by minion and nonce. A minion that
// repeats a request because the answer got lost receives the remembered answer. A recorded request
// that somebody sends again has no effect.
//
// Overflow policy: an answer is forgotten after window. The oldest ones are forgotten earlier if
// there are more than size, or if they take more than maxReplayBytes.
type replays struct {
	mu     sync.Mutex
	window time.Duration
	size   int
	byKey  map[replayKey]*list.Element
	order  *list.List
	bytes  int            // memory of the answers measured so far
	fresh  []*replayEntry // entries whose answers are not measured yet; about as many as requests at work
}

// maxReplayBytes bounds the memory of remembered answers: a minion can make some of them large.
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

	sharers atomic.Int32 // callers that wait for done
}

func newReplays(size int, window time.Duration) *replays {
	return &replays{window: window, size: size, byKey: map[replayKey]*list.Element{}, order: list.New()}
}

// claimEntry returns the entry of a request. If the second result is true, the caller must execute
// the request and close done; otherwise it waits for done and takes value and err.
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

// weighAnswers measures the answers that have arrived since the last call.
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

// weight returns about how many bytes of memory a value takes.
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

// forget lets a request be executed again after it has failed.
func (r *replays) forget(entry *replayEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.byKey[entry.key]; ok && e.Value == entry {
		r.remove(e)
	}
}
