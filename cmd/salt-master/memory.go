package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"saltern/internal/memlimit"
)

const (
	// roomyHeap is the heap up to which the collector may be lazy: with the
	// runtime's 4 MiB a small master spends a tenth of its time collecting.
	roomyHeap = 16 << 20
	// quietAllocs is the most that an idle master allocates in a tick, because of heartbeats of
	// connections; with a large heap, half of the heap.
	quietAllocs = 4 << 20
	// burstAllocs is how much must have been allocated since memory was
	// returned last for another time to be worth a collection.
	burstAllocs = 16 << 20
)

// memoryState holds the figures by which the keeper decides, in bytes.
type memoryState struct {
	live     uint64 // in use, as of the last collection
	allocs   uint64 // allocated since the start
	returned uint64 // the same when memory was returned last
}

// percent is the GOGC for a heap: generous for small ones, Go's 100 from
// roomyHeap/2 on.
func (m memoryState) percent() int {
	if m.live == 0 {
		return 400
	}
	return int(min(max((roomyHeap-min(m.live, roomyHeap))*100/m.live, 100), 400))
}

// wasteful reports whether memory should go back to the system: nothing much
// has happened since the state before, but a lot since the last time, or the start
// of the master, which is a burst of its own. (How much is in use cannot be told:
// the figure of a collection amid a burst counts all that was under way then.)
func (m memoryState) wasteful(before memoryState) bool {
	started := m.returned == 0 && before.allocs > 0
	return m.allocs-before.allocs < max(quietAllocs, m.live/2) && (started || m.allocs-m.returned > burstAllocs)
}

// share is the part of a limit for our own memory: the renderers are in the same
// group, and need some 50 MiB each.
func share(limit int64) int64 { return max(limit*6/10, limit-1<<30) }

// keepMemory adapts the collector to the heap and returns memory after
// bursts, such as a job of all minions, until ctx ends. GOGC and GOMEMLIMIT in
// the environment have the last word.
func keepMemory(ctx context.Context, log *slog.Logger) {
	var limit int64
	adapt := os.Getenv("GOGC") == ""
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	t := time.NewTicker(10 * time.Second)
	defer t.Stop()

	var before memoryState
	percent := 100
	for {
		// Whoever started us may put us into a group with a limit afterwards.
		if n := memlimit.Apply(share); n > 0 && n != limit {
			log.Debug("memory is limited", "bytes", n)
			limit = n
		}

		metrics.Read(samples)
		now := memoryState{
			live:     samples[0].Value.Uint64(),
			allocs:   samples[1].Value.Uint64(),
			returned: before.returned,
		}
		if now.wasteful(before) {
			debug.FreeOSMemory()
			now.returned = now.allocs
		}

		if p := now.percent(); adapt && p != percent && (p > percent+20 || p < percent-20 || p == 100) {
			debug.SetGCPercent(p)
			percent = p
		}

		before = now
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
