package master

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"saltern/master/value"
)

// BenchmarkReactionOfPython fires events to each of which a runner of the administrator's
// own reacts, all at once: a crowd of minions that start. It reports the processor time of
// all processes.
func BenchmarkReactionOfPython(b *testing.B) {
	r := startMaster(b, "saltern_renderer_python: "+saltPython(b)+"\nextension_modules: %DIR%/ext\nreactor: [{salt/minion/*/start: %DIR%/r.sls}]\n")
	for path, text := range map[string]string{
		"ext/runners/own.py": "def note(id, tgt=None):\n    return id\n",
		"r.sls":              "x:\n  runner.own.note:\n    - id: {{ data['id'] }}\n    - tgt: {{ grains['id'] }}\n",
	} {
		r.file(path, text)
	}
	done := func() uint64 { return r.m.reactor.Stats().Done }
	fire := func(n int) { r.m.fire(fmt.Sprintf("salt/minion/m%d/start", n), value.NewMap("id", fmt.Sprint("m", n))) }
	fire(0)
	until(b, "the first reaction", func() bool { return done() == 1 })

	before := processorTime(b)
	n := 0
	for b.Loop() {
		n++
		fire(n)
	}
	for got := done(); got <= uint64(n); got = done() {
		until(b, "further reactions, none of which is lost", func() bool { return done() > got })
	}
	r.stop() // the processes count when they have ended
	b.ReportMetric(float64((processorTime(b)-before).Milliseconds())/float64(n), "cpu-ms/op")
}

// processorTime is that of this process and of all of its children that have ended.
func processorTime(b *testing.B) (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		must(b, syscall.Getrusage(who, &u))
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
