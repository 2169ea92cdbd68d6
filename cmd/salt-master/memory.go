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
	// roomyHeap is the heap size up to which garbage collections are made rarer: with the runtime's
	// minimum heap of 4 MiB a small master spends a tenth of its time collecting.
	roomyHeap = 16 << 20
	// quietAllocs is the most that an idle master allocates between two samples; heartbeats on
	// connections cause these allocations. With a large heap the limit is half of the heap.
	quietAllocs = 4 << 20
	// burstAllocs is the least that the master must have allocated since it last returned memory to
	// the system. After fewer allocations another collection is not worth its cost.
	burstAllocs = 16 << 20
)

// memoryState holds the figures by which the keeper decides, in bytes.
type memoryState struct {
	live     uint64 // bytes in use at the last collection
	allocs   uint64 // bytes allocated since the start
	returned uint64 // value of allocs when memory was last returned
}

// percent returns the GOGC for the live heap: 400 for a small heap, less for a larger one, and Go's
// default of 100 from roomyHeap/2 on.
func (m memoryState) percent() int {
	if m.live == 0 {
		return 400
	}
	return int(min(max((roomyHeap-min(m.live, roomyHeap))*100/m.live, 100), 400))
}

// wasteful reports whether to return memory to the system: little has been allocated since the
// previous sample, but a lot since memory was last returned. Before the first return it counts from
// the start, which allocates a lot. (The memory in use is no measure: a collection in the middle of
// a burst includes data that is only temporarily in use.)
func (m memoryState) wasteful(before memoryState) bool {
	started := m.returned == 0 && before.allocs > 0
	return m.allocs-before.allocs < max(quietAllocs, m.live/2) && (started || m.allocs-m.returned > burstAllocs)
}

// share returns the part of a memory limit that this process may use. The renderers are in the same
// control group and need some 50 MiB each.
func share(limit int64) int64 { return max(limit*6/10, limit-1<<30) }

// keepMemory adapts the garbage collector to the heap, and returns memory to the system after bursts,
// such as a job of all minions, until ctx ends. GOGC and GOMEMLIMIT in the environment have priority.
func keepMemory(ctx context.Context, log *slog.Logger) {
	var limit int64
	adapt := os.Getenv("GOGC") == ""
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	t := time.NewTicker(10 * time.Second)
	defer t.Stop()

	var before memoryState
	percent := 100
	for {
		// The service manager may move this process to a group with a limit after the start.
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
