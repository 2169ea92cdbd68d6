package request

import (
	"runtime"
	"strconv"
	"sync"
	"time"
)

// inflight holds the start time of each request that is being handled, so that the status can show
// a request that hangs.
type inflight struct{ *inflightState }

type inflightState struct {
	mu   sync.Mutex
	next uint64
	at   map[uint64]time.Time
}

func newInflight() inflight { return inflight{&inflightState{at: map[uint64]time.Time{}}} }

func (f inflight) startRequest(now time.Time) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	f.at[f.next] = now
	return f.next
}

func (f inflight) endRequest(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.at, n)
}

func (f inflight) oldest(now time.Time) (time.Duration, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var max time.Duration
	for _, t := range f.at {
		if d := now.Sub(t); d > max {
			max = d
		}
	}
	return max, len(f.at)
}

// sanitize returns text from an untrusted sender in a form that is safe in a log line: at most 64
// bytes, on one line, without control characters.
func sanitize(s string) string {
	if len(s) > 64 {
		s = s[:64]
	}
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

func stackTrace() string {
	buf := make([]byte, 8192)
	return string(buf[:runtime.Stack(buf, false)])
}
