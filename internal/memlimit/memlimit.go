// Package memlimit sets how much memory Go's runtime may use, from the limit of the process's
// control group or the memory of the machine. A service manager limits the group (MemoryMax), and
// the kernel kills a process that exceeds the limit. Go's garbage collector must work harder before
// that happens.
package memlimit

import (
	"context"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Apply sets the runtime's memory limit to share(n), where n is the memory that the process may
// use, in bytes, and returns n. If n is unknown, it returns 0. GOMEMLIMIT in the environment has
// priority: then Apply sets nothing and returns 0.
func Apply(share func(limit int64) int64) int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	n := lowerLimit(cgroupLimit("/proc/self/cgroup", "/sys/fs/cgroup"), machineMemory("/proc/meminfo"))
	if n > 0 {
		debug.SetMemoryLimit(share(n))
	}
	return n
}

// Most returns the memory limit in bytes for a program that is alone in its control group. It is
// below MemoryHigh, above which the kernel slows a process down. Our units set MemoryHigh to nine
// tenths of limit.
func Most(limit int64) int64 { return limit / 10 * 8 }

// Follow calls Apply repeatedly until ctx ends, and calls changed each time the limit has changed.
func Follow(ctx context.Context, share func(limit int64) int64, changed func()) {
	last := debug.SetMemoryLimit(-1)
	// The service manager may move this process to a group with a limit later.
	t := time.NewTicker(10 * time.Second)
	defer t.Stop()

	for {
		Apply(share)
		if now := debug.SetMemoryLimit(-1); now != last {
			last = now
			changed()
		}

		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// cgroupLimit returns the least memory limit of the process's control group and of the groups above
// it, in bytes, or 0 if there is none. It reads both versions of control groups: memory.max of the
// second, memory.limit_in_bytes of the first.
func cgroupLimit(self, root string) int64 {
	b, err := os.ReadFile(self)
	if err != nil {
		return 0
	}

	var least int64
	for line := range strings.Lines(string(b)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":/")
		switch {
		case !ok:
		case controllers == "":
			least = lowerLimit(least, groupLimit(root, group, "memory.max"))
		case slices.Contains(strings.Split(controllers, ","), "memory"):
			least = lowerLimit(least, groupLimit(filepath.Join(root, "memory"), group, "memory.limit_in_bytes"))
		}
	}

	return least
}

// groupLimit returns the least limit of a group and of the groups above it, or 0.
func groupLimit(root, group, file string) (least int64) {
	for dir := filepath.Clean("/" + group); ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(root, dir, file))
		if err == nil {
			// Version 1 states "no limit" as a number larger than any machine's memory.
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n < 1<<60 {
				least = lowerLimit(least, n)
			}
		}
		if dir == "/" {
			return least
		}
	}
}

// lowerLimit returns the lower of two limits. 0 means no limit.
func lowerLimit(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// machineMemory returns the machine's memory in bytes, or 0 if that is unknown.
func machineMemory(meminfo string) int64 {
	b, err := os.ReadFile(meminfo)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(f[1], 10, 50)
			return kib << 10
		}
	}
	return 0
}
