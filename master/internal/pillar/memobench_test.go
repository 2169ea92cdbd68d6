package pillar

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

// benchSLS is what an SLS of a service may be: a map by the system, values of the
// role, loops.
const benchSLS = `{%% set pkg = salt['grains.filter_by']({'Debian': {'name': 'apache2'}, 'RedHat': {'name': 'httpd'}}, grain='os_family') %%}
service%[1]d:
  package: {{ pkg.name }}
  role: {{ grains['role'] }}
  site: {{ salt['grains.get']('location:site', 'none') }}
  port: {{ salt['pillar.get']('ports:service%[1]d', 8000 + %[1]d) }}
{%% if grains.role in ('role1', 'role3') %%}
  tuned: {{ grains.get('num_cpus', 1) * 2 }}
{%% endif %%}
  workers:
{%% for i in range(10) %%}
    - {name: w{{ i }}, queue: {{ grains['role'] }}-{{ i }}, tags: {{ grains['tags'] | tojson }}}
{%% endfor %%}
`

// benchGrains are those of minion i: of ten roles, as many as a server has.
func benchGrains(i int) *value.Map {
	g := value.NewMap("id", "", "host", fmt.Sprint("host", i), "role", fmt.Sprint("role", i%10), "os_family", "Debian", "location", value.NewMap("site", "a", "rack", int64(i)),
		"num_cpus", int64(4), "tags", []any{"x", fmt.Sprint("t", i%10)}, "ip_interfaces", value.NewMap("eth0", []any{fmt.Sprint("10.0.0.", i)}), "machine_id", fmt.Sprint("id", i))
	for j := range 60 {
		g.Set(fmt.Sprint("grain", j), fmt.Sprintf("a value of %d characters or so", 30+j))
	}
	return g
}

// BenchmarkMemo compiles the pillar of a thousand minions of ten roles, of a top file with Jinja
// and twenty SLS: with nothing kept (fifty minions), without the memo (a hundred), for the first
// time with it, and again. It measures the CPU time of this process and of the renderers.
func BenchmarkMemo(b *testing.B) {
	files := map[string]string{"p/top.sls": "base:\n  '*':\n{% for i in range(20) %}\n    - s{{ i }}\n{% endfor %}\n  'role:{{ grains.role }}':\n    - match: grain\n    - s0\n"}
	for i := range 20 {
		files[fmt.Sprintf("p/s%d.sls", i)] = fmt.Sprintf(benchSLS, i)
	}

	root := tree(b, files)
	renderers := func(fresh bool) *renderer.Pool {
		pool := renderer.New(renderer.Config{
			Python:     []string{python(b)},
			MaxWorkers: 2,
			WorkerIdle: time.Hour, // a worker that ends takes its CPU time with it
			Fresh:      fresh,
			Overrides:  value.NewMap("root_dir", root, "id", "m", "pillar_roots", value.NewMap("base", []any{root + "/p"})),
		})
		b.Cleanup(pool.Close)
		return pool
	}

	store := memo.New(memo.Config{})
	later := func() time.Time { return time.Now().Add(time.Minute) } // files have settled
	pool := renderers(false)
	fresh := New(Config{Roots: base(root + "/p"), Renderers: renderers(true), Now: later})
	off := New(Config{Roots: base(root + "/p"), Renderers: pool, Now: later})
	on := New(Config{Roots: base(root + "/p"), Renderers: pool, Memo: store, Now: later})
	for _, c := range []*Compiler{fresh, off} {
		compile(b, c, Request{ID: "first", Grains: benchGrains(0)}) // Python starts
	}

	for _, run := range []struct {
		name    string
		c       *Compiler
		minions int
	}{{"fresh", fresh, 50}, {"off", off, 100}, {"first", on, 1000}, {"again", on, 1000}} {
		b.Run(run.name, func(b *testing.B) {
			cpu, pillars := cpuTime(b), 0
			for b.Loop() {
				for i := range run.minions {
					compile(b, run.c, Request{ID: fmt.Sprint("m", i), Grains: benchGrains(i)})
					pillars++
				}
			}

			b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/1000/float64(pillars), "cpu-ms/pillar")
			b.ReportMetric(0, "ns/op")
			s := store.Stats()
			b.Logf("%s: %d hits, %d misses, %d alone, %d results of %d KiB", run.name, s.Hits, s.Misses,
				s.Alone, s.Results, s.Bytes>>10)
		})
	}
}

// cpuTime is the time that this process and all below it have computed.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		tb.Fatal(err)
	}

	sum := time.Duration(self.Utime.Nano() + self.Stime.Nano())
	parents := []int{os.Getpid()}
	for i := 0; i < len(parents); i++ {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", parents[i]))
		if i == 0 { // a thread other than the first may have started Python
			text, err = childrenOfThreads(parents[0])
		}

		if err != nil {
			tb.Fatal(err)
		}

		for _, f := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				tb.Fatal(err)
			}

			parents = append(parents, pid)
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
			if err != nil {
				tb.Fatal(err)
			}

			ns, err := strconv.ParseInt(strings.Fields(string(stat))[0], 10, 64)
			if err != nil {
				tb.Fatal(err)
			}

			sum += time.Duration(ns)
		}
	}

	return sum
}

func childrenOfThreads(pid int) (all []byte, err error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range threads {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name())) // one may have ended
		all = append(append(all, text...), ' ')
	}
	return all, err
}
