package functions

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// BenchmarkReactionOfPython fires events to each of which a reaction calls Python, all at
// once: a crowd of minions that start. It reports the processor time of all processes, how
// many of Python's worked at once, and the memory that they had in the worst moment.
func BenchmarkReactionOfPython(b *testing.B) {
	for _, reaction := range []struct{ name, text string }{
		{"runner", "x:\n  runner.own.note:\n    - id: {{ data['id'] }}\n    - tgt: {{ grains['id'] }}\n"},
		{"orchestration",
			"x:\n  runner.state.orchestrate:\n    - mods: welcome\n    - pillar: {id: {{ data['id'] }}}\n"},
	} {
		b.Run(reaction.name, func(b *testing.B) { benchmarkReaction(b, reaction.text) })
	}
}

func benchmarkReaction(b *testing.B, reaction string) {
	r := mastertest.Start(b,
		"saltern_renderer_python: "+mastertest.SaltPython(b)+
			"\nextension_modules: %DIR%/ext\nfile_roots: {base: [%DIR%/srv]}\nreactor: [{salt/minion/*/start: %DIR%/r.sls}]\n")
	for path, text := range map[string]string{
		"ext/runners/own.py": "def note(id, tgt=None):\n    return id\n",
		"srv/welcome.sls":    "greet:\n  salt.runner:\n    - name: own.note\n    - id: {{ pillar.id }}\n",
		"r.sls":              reaction,
	} {
		r.AddFile(path, text)
	}

	done := func() uint64 { return r.Parts.Reactor.Stats().Done }
	fire := func(n int) {
		r.Parts.Fire(fmt.Sprintf("salt/minion/m%d/start", n), value.NewMap("id", fmt.Sprint("m", n)))
	}
	fire(0)
	await.That(b, "the first reaction", func() bool { return done() == 1 })

	before := processorTime(b)
	n := 0
	for b.Loop() {
		n++
		fire(n)
	}

	workers, memory := 0, int64(0)
	for got := done(); got <= uint64(n); got = done() {
		await.That(b, "further reactions, none of which is lost", func() bool {
			workers = max(workers, r.Parts.Python.Stats().Workers)
			memory = max(memory, childrenMemory(b))
			return done() > got
		})
	}

	r.Stop() // the processes count when they have ended
	b.ReportMetric(float64((processorTime(b)-before).Milliseconds())/float64(n), "cpu-ms/op")
	b.ReportMetric(float64(workers), "workers")
	b.ReportMetric(float64(memory>>20), "MiB")
}

// childrenMemory is the memory of the processes below this one, shared parts of it by their
// shares (proc(5), Pss).
func childrenMemory(b *testing.B) (sum int64) {
	below := map[int]bool{os.Getpid(): true}
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	check.Must(b, err)
	for grown := true; grown; {
		grown = false
		for _, path := range entries {
			stat, err := os.ReadFile(path)
			if err != nil {
				continue // it has ended
			}

			var pid, parent int
			if _, err := fmt.Sscanf(string(stat[:bytes.IndexByte(stat, ' ')])+
				string(stat[bytes.LastIndexByte(stat, ')')+3:]),
				"%d %d", &pid, &parent); err == nil && below[parent] && !below[pid] {
				below[pid], grown = true, true
			}
		}
	}

	for pid := range below {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		_, pss, found := strings.Cut(string(text), "\nPss:")
		var kib int64
		if _, scanned := fmt.Sscan(pss, &kib); pid != os.Getpid() && err == nil && found && scanned == nil {
			sum += kib << 10
		}
	}

	return sum
}

// processorTime is that of this process and of all of its children that have ended.
func processorTime(b *testing.B) (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		check.Must(b, syscall.Getrusage(who, &u))
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
