package pyrunner

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkCall performs one call after the other and reports the processor time of all processes.
func BenchmarkCall(b *testing.B) {
	c, _ := setUp(b, false)
	if _, err := c.Call(b.Context(), "odd.who", nil, nil); err != nil {
		b.Fatal(err)
	}
	before := processorTime(b)
	for b.Loop() {
		if _, err := c.Call(b.Context(), "odd.who", nil, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/1e6, "cpu-ms/op")
}

// BenchmarkCrowd is 300 calls at once.
func BenchmarkCrowd(b *testing.B) {
	c, _ := setUp(b, false)
	if _, err := c.Call(b.Context(), "odd.who", nil, nil); err != nil {
		b.Fatal(err)
	}

	for b.Loop() {
		var all sync.WaitGroup
		for range 300 {
			all.Go(func() {
				if _, err := c.Call(b.Context(), "odd.who", nil, nil); err != nil {
					b.Error(err)
				}
			})
		}

		all.Wait()
	}
}

// processorTime is what the children of this process, and theirs, have used.
func processorTime(b *testing.B) (used time.Duration) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err != nil {
		b.Skip(err)
	}

	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		more, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		children = append(append(children, ' '), more...)
	}

	seen := map[string]bool{}
	for _, pid := range strings.Fields(string(children)) {
		if seen[pid] {
			continue
		}

		seen[pid] = true
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		for _, f := range fields[11:15] {
			n, _ := strconv.Atoi(f)
			used += time.Duration(n) * 10 * time.Millisecond
		}
	}

	return used
}
