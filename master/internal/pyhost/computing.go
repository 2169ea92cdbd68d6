package pyhost

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"saltern/internal/pause"
)

// computingShare is the share of an interval that a worker must have run, or waited for a processor,
// to count as a worker that computes.
const computingShare = 0.1

// looksIdle is how many looks in a row must find a worker idle, so that a short wait does not count.
const looksIdle = 2

// watchComputing calls stopComputing when the process pid only waits, or has computed for longer
// than computesFor. It returns afterwards, or when ctx ends.
func watchComputing(ctx context.Context, pid int64, stopComputing func()) {
	before := map[int64]time.Duration{}
	began := time.Now()
	for idle := 0; idle < looksIdle && time.Since(began) < computesFor; {
		last := time.Now()
		if pause.For(ctx, computingLook) != nil {
			return
		}

		now := map[int64]time.Duration{}
		busy := lookAtFamily(pid, now)
		if busy || demanded(before, now) > time.Duration(computingShare*float64(time.Since(last))) {
			idle = 0
		} else {
			idle++
		}
		before = now
	}
	stopComputing()
}

// demanded returns how much processor time the processes have demanded between two looks. A process
// that has begun or ended in between counts as an hour.
func demanded(before, now map[int64]time.Duration) (sum time.Duration) {
	for pid, demand := range now {
		earlier, known := before[pid]
		if !known {
			return time.Hour
		}
		sum += demand - earlier
	}
	if len(before) > len(now) {
		return time.Hour
	}
	return sum
}

// maxFamily bounds how many descendants of a worker are looked at.
const maxFamily = 64

// lookAtFamily enters into demand how much processor time a process and its descendants have
// demanded: how long their main threads have run, or were ready to run while all processors were
// busy (Documentation/scheduler/sched-stats.rst of Linux). It reports whether one of them is ready
// to run, or waits for a disk.
func lookAtFamily(pid int64, demand map[int64]time.Duration) (busy bool) {
	if len(demand) == maxFamily {
		return false
	}
	dir := fmt.Sprintf("/proc/%d", pid)
	var ran, delayed int64
	text, err := os.ReadFile(dir + "/schedstat")
	if n, _ := fmt.Sscan(string(text), &ran, &delayed); err != nil || n < 2 {
		return false // it has ended
	}
	demand[pid] = time.Duration(ran + delayed)

	// The kernel counts a delay only when it is over.
	text, _ = os.ReadFile(dir + "/stat")
	if i := bytes.LastIndexByte(text, ')'); i >= 0 && i+2 < len(text) {
		busy = text[i+2] == 'R' || text[i+2] == 'D'
	}

	text, _ = os.ReadFile(fmt.Sprintf("%s/task/%d/children", dir, pid))
	for _, word := range strings.Fields(string(text)) {
		child, err := strconv.ParseInt(word, 10, 64)
		if err == nil && lookAtFamily(child, demand) {
			busy = true
		}
	}
	return busy
}
