package history

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"saltern/master/history/summary"
	"saltern/test/await"
	"saltern/test/check"
)

// fleet generates the returns of 2,000 minions over 90 days: one in five is a state run of 12 to 40
// states, in which few states change or fail; the others are short answers, in jobs of all minions,
// of groups of them, and of single ones.
type fleet struct {
	r       *rand.Rand
	minions []string
	states  [][]summary.State // the states of each kind of minion
	at      time.Time
	step    time.Duration // between two returns

	jid, function string
	waiting       []string // minions that have still to return for the job
}

func newFleet(returns int) *fleet {
	f := &fleet{r: rand.New(rand.NewPCG(1, 2)), at: begin, step: 90 * 24 * time.Hour / time.Duration(returns)}
	for i := range 2000 {
		f.minions = append(f.minions, fmt.Sprintf("web%d.example.com", i))
	}
	for kind := range 12 {
		var list []summary.State
		for i := range 12 + f.r.IntN(29) {
			list = append(list, summary.State{
				ID:       fmt.Sprintf("role%d_state_%d", kind, i),
				SLS:      fmt.Sprintf("role%d.service%d", kind, i/5),
				Name:     fmt.Sprintf("/etc/role%d/conf.d/%d.conf", kind, i),
				Function: []string{"file.managed", "pkg.installed", "service.running"}[i%3],
				Comment:  fmt.Sprintf("File /etc/role%d/conf.d/%d.conf is in the correct state", kind, i),
			})
		}
		f.states = append(f.states, list)
	}
	return f
}

// next returns the next run.
func (f *fleet) next() Run {
	f.at = f.at.Add(f.step)
	if len(f.waiting) == 0 {
		f.beginJob()
	}
	minion := f.waiting[len(f.waiting)-1]
	f.waiting = f.waiting[:len(f.waiting)-1]
	run := Run{Minion: minion, JID: f.jid, User: "root", Function: f.function, Time: f.at}
	if f.function != "state.apply" {
		run.Summary = summary.Summary{Function: f.function}
		run.Return = fmt.Appendf(nil, "\x83\xa6return\xd9\x20%032x\xa7retcode\x00\xa7success\xc3", f.r.Uint64())
		return run
	}

	f.stateRun(&run, f.states[len(minion)%7+int(minion[len(minion)-13])%6])
	return run
}

// beginJob chooses a function and the minions that return.
func (f *fleet) beginJob() {
	f.jid = jidAt(f.at)
	f.function = []string{"test.ping", "cmd.run", "grains.item", "status.uptime", "state.apply"}[f.r.IntN(5)]
	switch f.r.IntN(40) {
	case 0:
		f.waiting = slices.Clone(f.minions)
	case 1, 2, 3, 4, 5:
		first := f.r.IntN(len(f.minions) - 50)
		f.waiting = slices.Clone(f.minions[first : first+50])
	default:
		f.waiting = []string{f.minions[f.r.IntN(len(f.minions))]}
	}
}

// stateRun fills in the return of a state run and its summary.
func (f *fleet) stateRun(run *Run, states []summary.State) {
	s := summary.Summary{Function: run.Function}
	b := []byte("\x83\xa6return\xde")
	for i, state := range states {
		state.Duration = time.Duration(f.r.IntN(5000)) * time.Microsecond
		changes := "{}"
		switch f.r.IntN(1000) {
		case 0, 1, 2:
			state.Changes = "diff: -old line\n+new line"
			changes = fmt.Sprintf("diff: ---\n+++\n@@ -1 +1 @@\n-old line %x\n+new line", f.r.Uint32())
			s.Changed++
			s.ChangedStates = append(s.ChangedStates, state)
		case 3:
			state.Comment = "Failed to restart the service: timeout"
			s.Failed++
			s.FailedStates = append(s.FailedStates, state)
		default:
			s.OK++
		}
		if len(s.Slowest) < summary.MaxSlowest {
			s.Slowest = append(s.Slowest, state)
		}
		s.Duration += state.Duration
		b = fmt.Appendf(b, "%s_|-%s_|-%s_|-managed name %s changes %s result true comment %s __sls__ %s __run_num__ %d "+
			"start_time %s duration %d __id__ %s", state.Function, state.ID, state.Name, state.Name, changes,
			state.Comment, state.SLS, i, run.Time.Format("15:04:05.000000"), state.Duration.Microseconds(), state.ID)
	}
	switch {
	case s.Failed > 0:
		s.Result = summary.Failed
	case s.Changed > 0:
		s.Result = summary.Changed
	}
	run.Summary = s
	run.Return = b
}

func BenchmarkAppend(b *testing.B) {
	s := open(b, Config{Dir: b.TempDir(), segmentRuns: segmentRuns, chunkRows: chunkRows})
	f := newFleet(1_000_000)
	runs := make([]Run, 20_000)
	for i := range runs {
		runs[i] = f.next()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		run := runs[i%len(runs)]
		if i >= len(runs) {
			run.Minion += strconv.Itoa(i / len(runs))
		}
		check.Must(b, s.Append(run))
	}
}

// processorTime returns the time of a processor that this process has used.
func processorTime(t *testing.T) time.Duration {
	var usage syscall.Rusage
	check.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestTenMillion is the test of make bench-history: it fills SALTERN_HISTORY_DIR with
// SALTERN_HISTORY_RUNS runs, unless the folder has them, and measures queries.
func TestTenMillion(t *testing.T) {
	dir := os.Getenv("SALTERN_HISTORY_DIR")
	n, _ := strconv.Atoi(os.Getenv("SALTERN_HISTORY_RUNS"))
	if dir == "" || n == 0 {
		t.Skip("a measurement by hand: make bench-history")
	}

	cfg := Config{Dir: dir, MaxBytes: 1 << 40, Now: func() time.Time { return begin.AddDate(0, 0, 90) }}
	s, err := Open(cfg)
	check.Must(t, err)
	f := newFleet(n)
	have := s.Stats().Runs
	lastJob := 0
	var jobs, large []string // ids of some jobs, and of some jobs of all minions
	var raw int64
	var spent time.Duration
	for i := range n {
		run := f.next()
		if begins := jidAt(run.Time) == run.JID; begins && i-lastJob >= n/1000 {
			lastJob = i
			jobs = append(jobs, run.JID)
		} else if begins && len(f.waiting) > 1000 {
			large = append(large, run.JID)
		}
		raw += int64(len(run.Return))
		if have < n {
			began := time.Now()
			check.Must(t, s.Append(run))
			spent += time.Since(began)
		}
	}
	check.Must(t, s.Close())

	began := time.Now()
	s, err = Open(cfg)
	check.Must(t, err)
	opened := time.Since(began)
	st := s.Stats()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	check.Must(t, err)
	t.Logf("%d runs; returns of %d MiB; on disk %d MiB, %d bytes a run; %d files, %.6f inodes a run", st.Runs,
		raw>>20, st.Bytes>>20, st.Bytes/int64(st.Runs), len(files), float64(len(files))/float64(st.Runs))
	if have < n {
		t.Logf("Append: %v a run", spent/time.Duration(n))
	}
	t.Logf("Open: %v", opened)

	measure := func(what string, times int, query func(i int) (Filter, int)) {
		var took []time.Duration
		runs := 0
		before := processorTime(t)
		for i := range times {
			filter, limit := query(i)
			began := time.Now()
			page, err := s.Query(await.Context(t), filter, limit, "")
			check.Must(t, err)
			took = append(took, time.Since(began))
			runs += len(page.Runs)
		}
		cpu := (processorTime(t) - before) / time.Duration(times)
		slices.Sort(took)
		t.Logf("%-47s p50 %8v  p99 %8v  longest %8v  processor %8v  %6.1f runs", what,
			took[times/2].Round(10*time.Microsecond), took[times*99/100].Round(10*time.Microsecond),
			took[times-1].Round(10*time.Microsecond), cpu.Round(10*time.Microsecond), float64(runs)/float64(times))
	}

	minion := func(i int) string { return f.minions[(i*379)%len(f.minions)] }
	month := Filter{From: begin, To: begin.AddDate(0, 1, 0)}
	measure("lookup by jid", 500, func(i int) (Filter, int) {
		return Filter{JID: jobs[(i*131)%len(jobs)]}, 10_000
	})
	measure("lookup by jid, with returns", 500, func(i int) (Filter, int) {
		return Filter{JID: jobs[(i*131)%len(jobs)], Returns: true}, 10_000
	})
	measure("lookup by jid, of all minions", 200, func(i int) (Filter, int) {
		return Filter{JID: large[(i*131)%len(large)]}, 10_000
	})
	measure("lookup by jid, of all minions, with returns", 200, func(i int) (Filter, int) {
		return Filter{JID: large[(i*131)%len(large)], Returns: true}, 10_000
	})
	measure("lookup by jid, one that there is not", 500, func(i int) (Filter, int) {
		return Filter{JID: jidAt(begin.Add(time.Duration(i) * 3 * time.Hour).Add(7 * time.Nanosecond * 1001))}, 10
	})
	measure("all runs of one minion in March", 200, func(i int) (Filter, int) {
		filter := month
		filter.Minion = minion(i)
		return filter, 10_000
	})
	measure("newest 50 runs of one minion", 500, func(i int) (Filter, int) {
		return Filter{Minion: minion(i)}, 50
	})
	measure("newest 50 failed runs of one minion", 100, func(i int) (Filter, int) {
		return Filter{Minion: minion(i), Results: []summary.Result{summary.Failed, summary.Error}}, 50
	})
	measure("newest 50 runs in which a state failed, changed", 100, func(i int) (Filter, int) {
		return Filter{State: f.states[i%12][i%10].ID}, 50
	})
	measure("newest 50 runs", 500, func(int) (Filter, int) { return Filter{}, 50 })

	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	t.Logf("memory: %d MiB of heap after a collection, %d MiB of it the indexes and hashes of the newest segments and "+
		"at most 32 MiB the cache; %d bytes for %d sealed segments", m.HeapAlloc>>20, s.Stats().MemoryBytes>>20,
		300*(st.Segments-1), st.Segments-1)
	check.Must(t, s.Close())
}
