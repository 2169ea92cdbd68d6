package pyrunner

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/event"
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

// BenchmarkOrchestration performs orchestrations with steps that call a runner each.
func BenchmarkOrchestration(b *testing.B) {
	c, dir := setUp(b, false)
	sockets := filepath.Join(dir, "var/run/salt/master")
	for _, folder := range []string{sockets, filepath.Join(dir, "var/cache/salt/master/proc")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			b.Fatal(err)
		}
	}

	events, err := event.Serve(event.NewBus(nil, 0), event.Config{Dir: sockets}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer events.Close()

	put(b, filepath.Join(dir, "master"), "root_dir: "+dir+"\nid: m1\nfile_roots: {base: ["+dir+"/srv]}\n")
	for _, steps := range []int{1, 5} {
		mods := fmt.Sprint("steps", steps)
		var sls strings.Builder
		for i := range steps {
			fmt.Fprintf(&sls, "s%d:\n  salt.runner: [{name: test.arg}, {arg: [%d]}]\n", i, i)
		}

		put(b, filepath.Join(dir, "srv", mods+".sls"), sls.String())
		b.Run(mods, func(b *testing.B) {
			perform := func() {
				if _, err := c.Call(b.Context(), "state.orchestrate", []any{mods}, nil); err != nil {
					b.Fatal(err)
				}
			}
			for range 5 { // the parent loads in advance what the first ones have loaded
				perform()
			}

			before := processorTime(b)
			for b.Loop() {
				perform()
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/1e6, "cpu-ms/op")
		})
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
