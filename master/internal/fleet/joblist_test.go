package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/master/history"
	"saltern/master/jobs"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/check"
)

// loadsOf has loads by job id.
type loadsOf map[string]*value.Map

func (l loadsOf) Load(_ context.Context, jid string) (*value.Map, error) { return l[jid], nil }

func (b *bench) jobList(cache loads, kv ...any) (*value.Map, error) {
	b.Helper()
	f := NewFleet(b.recorder, accepted{}, nil, b.clock)
	do := func(ctx context.Context, f *Fleet, a arguments) (any, error) { return jobsOf(ctx, f, cache, a) }
	v, err := f.call(b.Context(), jobFunction, function{jobNames, do}, nil, value.NewMap(kv...))
	m, _ := v.(*value.Map)
	return m, err
}

func (b *bench) mustListJobs(cache loads, kv ...any) *value.Map {
	b.Helper()
	m, err := b.jobList(cache, kv...)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// job adds a job with a return of each minion; those whose names end in "!" fail.
func (b *bench) job(function, user string, minions ...string) string {
	b.Helper()
	a := b.archived("", function, "", nil)
	for _, minion := range minions {
		name, failed := strings.CutSuffix(minion, "!")
		one := b.archived(name, function, "", states("a=ok"))
		if failed {
			one = b.archived(name, function, "", states("a=failed"))
		}
		one.JID = a.JID
		load := value.NewMap("fun", function, "user", user)
		one.Load = func() *value.Map { return load }
		b.add(one)
	}
	return a.JID
}

// line describes a job of an answer.
func line(v any) string {
	m, _ := v.(*value.Map)
	return fmt.Sprintf("%s %s %s ok %v failed %v absent %v", m.Str("jid"), m.Str("function"), m.Str("user"), m.Value("ok"), m.Value("failed"),
		m.Value("absent"))
}

// TestSyndicsAreNotAbsent: a syndic is no minion of a job, nor of the fleet, until it has answered as one.
func TestSyndicsAreNotAbsent(t *testing.T) {
	b := newBench(t)
	jid := b.job("state.apply", "alice", "web1", "low1", "syndic2")
	cache := loadsOf{jid: value.NewMap("fun", "state.apply", "user", "alice", "tgt", "*",
		"Minions", []any{"web1", "web2", "syndic1", "syndic2", "low1"})}
	job, _ := b.mustListJobs(cache, "jid", jid).List("jobs")[0].(*value.Map)
	if got := line(job); got != jid+" state.apply alice ok 3 failed 0 absent 1" || job.Value("minions") != int64(4) {
		t.Errorf("%s", value.Repr(job))
	}

	f := NewFleet(b.recorder, accepted{"syndic1", "syndic2", "web1", "web2"}, nil, b.clock)
	sum, err := f.Summary(t.Context(), start)
	check.Must(t, err)
	if trend := f.Trend(); sum.Minions != 3 || sum.NeverRun != 1 || trend.Minions != 3 || trend.Never != 1 {
		t.Errorf("summary %+v, trend %+v", sum, trend)
	}
	if figures := f.Figures(); figures.LastRuns["never"] != 1 {
		t.Errorf("figures %+v", figures)
	}
}

func TestOutcomesOfJobs(t *testing.T) {
	b := newBench(t)
	one := b.job("state.apply", "alice", "web1", "web2!", "web3")
	cache := loadsOf{one: value.NewMap("fun", "state.apply", "user", "alice", "tgt", "*", "Minions", []any{"web1", "web2", "web3", "web4"})}
	ask := func() string { return line(b.mustListJobs(cache, "jid", one).List("jobs")[0]) }
	want := one + " state.apply alice ok 2 failed 1 absent 1"
	if got := ask(); got != want {
		t.Errorf("%s, want %s", got, want)
	}

	// The last return comes; then it comes again, after a crash.
	last := b.archived("web4", "state.apply", "", states("a=failed"))
	last.JID = one
	want = one + " state.apply alice ok 2 failed 2 absent 0"
	for range 2 {
		b.add(last)
		if got := ask(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	b.reopen()
	b.add(last)
	if got := ask(); got != want {
		t.Errorf("after a restart: %s, want %s", got, want)
	}

	none := jobs.FromTime(start)
	if got := line(b.mustListJobs(cache, "jid", none).List("jobs")[0]); got != none+"   ok 0 failed 0 absent <nil>" {
		t.Errorf("a job that nobody knows: %s", got)
	}
}

// TestLeftOutWithoutOutcome: the load of a batch tells whom it leaves out, also when the history is not read.
func TestLeftOutWithoutOutcome(t *testing.T) {
	b := newBench(t)
	one := b.job("state.apply", "alice", "web1")
	of := value.NewMap("minions", 300, "absent", 7)
	cache := loadsOf{one: value.NewMap("fun", "state.apply", "Minions", []any{"web1"}, jobs.BatchField, of)}
	b.reopen()
	f := NewFleet(b.recorder, accepted{}, nil, b.clock)
	budget := 0
	m, err := f.jobMap(t.Context(), cache, &foundJob{jid: one}, &budget)
	check.Must(t, err)
	if m.Value("ok") != nil || m.Value("pending") != any(int64(292)) || m.Value("left_out") != any(int64(7)) {
		t.Errorf("%s", value.Repr(m))
	}
}

// TestOutcomesOfBatches: the load of a batch has the target and the minions of its slices up to now, and the batch's own.
func TestOutcomesOfBatches(t *testing.T) {
	for name, c := range map[string]struct {
		of   *value.Map
		want string
	}{
		"halted": {
			value.NewMap("minions", 300, "absent", 7, "size", 3, "tgt", "sw-*", "tgt_type", "glob"),
			"sw-* glob minions 300 pending 290 absent 8 left out 7",
		},
		"all have it": {value.NewMap("minions", 3, "absent", 0, "tgt", "G@os:x", "tgt_type", "compound"),
			"G@os:x compound minions 3 pending <nil> absent 1 left out <nil>"},
		"a long target": {value.NewMap("minions", 3), "['web3'] list minions 3 pending <nil> absent 1 left out <nil>"},
		"no numbers":    {value.NewMap("minions", -5, "absent", -1), "['web3'] list minions 3 pending <nil> absent 1 left out <nil>"},
		"no batch":      {nil, "['web3'] list minions 3 pending <nil> absent 1 left out <nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			one := b.job("state.apply", "alice", "web1", "web2!")
			load := value.NewMap("fun", "state.apply", "tgt", []any{"web3"}, "tgt_type", "list", "Minions", []any{"web1", "web2", "web3"})
			if c.of != nil {
				load.Set(jobs.BatchField, c.of)
			}
			m, _ := b.mustListJobs(loadsOf{one: load}, "jid", one).List("jobs")[0].(*value.Map)
			got := fmt.Sprintf("%s %s minions %v pending %v absent %v left out %v", m.Str("target"), m.Str("target_type"), m.Value("minions"),
				m.Value("pending"), m.Value("absent"), m.Value("left_out"))
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestArgumentsThatWouldNotBeObeyed: an answer that is empty for a fault in the question looks like good news.
func TestArgumentsThatWouldNotBeObeyed(t *testing.T) {
	b := newBench(t)
	one := b.job("state.apply", "alice", "web1", "web2!")
	for _, kv := range [][]any{
		{"jid", one, "minion", "nope"},
		{"jid", one, "limit", 1},
		{"since", "1h", "until", "2h"},
		{"since", "2026-01-01", "until", "2026-01-01"},
		{"since", 600},
	} {
		_, err := b.jobList(loadsOf{}, kv...)
		var wrong *runner.ArgumentError
		if !errors.As(err, &wrong) {
			t.Errorf("%v: %v", kv, err)
		}
	}

	f := NewFleet(b.recorder, accepted{}, nil, b.clock)
	for _, jid := range []string{"abc", "*", one + "*"} {
		_, err := f.call(t.Context(), "fleet.runs", functions["fleet.runs"], nil, value.NewMap("jid", jid))
		var wrong *runner.ArgumentError
		if !errors.As(err, &wrong) {
			t.Errorf("jid %s: %v", jid, err)
		}
	}

	// The default of since is a span before until.
	for name, args := range map[string][]any{"fleet.drift": nil, "fleet.search": {"x"}} {
		v, err := f.call(t.Context(), name, functions[name], args, value.NewMap("until", "2026-01-10"))
		m, _ := v.(*value.Map)
		if err != nil || m.Str("since") >= "2026-01-10" {
			t.Errorf("%s: since %s, %v", name, m.Str("since"), err)
		}
	}
}

// TestOutcomesOfRunsOfStates: of a run of states the answer tells the same results apart as fleet.last.
func TestOutcomesOfRunsOfStates(t *testing.T) {
	b := newBench(t)
	one := b.job("state.apply", "alice", "web1", "web2!")
	for minion, ret := range map[string]any{
		"web3": states("a=changed"),
		"web4": []any{"Rendering SLS 'base:a' failed"},
		"web5": states("a=would"),
	} {
		again := b.archived(minion, "state.apply", "", ret)
		again.JID = one
		b.add(again)
	}

	m, _ := b.mustListJobs(loadsOf{}, "jid", one).List("jobs")[0].(*value.Map)
	for field, want := range map[string]int64{"ok": 3, "changed": 1, "would_change": 1, "failed": 2, "error": 1} {
		if got, _ := m.Int(field); got != want {
			t.Errorf("%s: %d, want %d", field, got, want)
		}
	}
}

// TestJobsOfTheHistoryArePaged: each job is in one page, in whichever order its returns came.
func TestJobsOfTheHistoryArePaged(t *testing.T) {
	b := newBench(t)
	var want []string
	for i := range 30 {
		minions := []string{"web1", "web2"}
		if i%3 == 0 {
			minions = []string{"web1!", "web3"}
		}
		want = append(want, b.job("state.apply", "alice", minions...))
		if i >= 10 { // a late return of an earlier job
			late := b.archived("late", "state.apply", "", states("a=failed"))
			late.JID = want[i-10]
			b.add(late)
		}
	}
	b.job("test.ping", "bob", "web1")

	for _, tt := range []struct {
		name string
		kv   []any
		want int
	}{
		{"all", nil, 31},
		{"one minion", []any{"minion", "web2"}, 20},
		{"some minions", []any{"minion", "web*"}, 31},
		{"late returns", []any{"minion", "lat?"}, 20},
		{"ok", []any{"result", "ok"}, 31},
		{"failed", []any{"result", "failed,error"}, 23},
		{"function", []any{"function", "test.ping"}, 1},
		{"functions", []any{"function", "*e*"}, 31},
		{"user", []any{"user", "a*"}, 30},
		{"nobody", []any{"user", "<b>"}, 0},
	} {
		for _, limit := range []int{1, 4, 200} {
			t.Run(fmt.Sprint(tt.name, limit), func(t *testing.T) {
				seen := map[string]int{}
				page := ""
				for range 100 {
					m := b.mustListJobs(loadsOf{}, append([]any{"limit", limit, "page", page}, tt.kv...)...)
					for _, e := range m.List("jobs") {
						seen[e.(*value.Map).Str("jid")]++
					}
					if page = m.Str("next"); page == "" {
						break
					}
				}
				for jid, n := range seen {
					if n != 1 {
						t.Errorf("%s is there %d times", jid, n)
					}
				}
				if len(seen) != tt.want || page != "" {
					t.Errorf("%d jobs, want %d; next %q", len(seen), tt.want, page)
				}
			})
		}
	}
}

func TestOutcomesAreBounded(t *testing.T) {
	o := newOutcomes()
	for i := range maxOutcomes + 10 {
		o.begin(fmt.Sprint(i))
	}
	if len(o.jobs) > maxOutcomes {
		t.Errorf("%d jobs", len(o.jobs))
	}
	one := o.begin("x")
	run := runAt(start, 0)
	for i := range 2*maxOutcomeReturns + 10 {
		run.Minion = fmt.Sprint(i)
		o.mu.Lock()
		o.addLocked(one, run)
		o.mu.Unlock()
	}
	if o.returns > 2*maxOutcomeReturns || len(o.jobs) > 0 {
		t.Errorf("%d returns of %d jobs", o.returns, len(o.jobs))
	}
}

func TestJobsRefuseWrongArguments(t *testing.T) {
	b := newBench(t)
	for _, kv := range [][]any{
		{"jid", "x"}, {"jid", strings.Repeat(jobs.FromTime(start)+",", 201) + jobs.FromTime(start)}, {"limit", 201}, {"page", "x"}, {"result", "x"},
		{"jid", strings.Repeat("1", 100_000)}, {"minion", strings.Repeat("1", 1000)},
	} {
		_, err := b.jobList(loadsOf{}, kv...)
		if _, ok := err.(*runner.ArgumentError); !ok {
			t.Errorf("%.60v: %v", kv, err)
		}
	}
}

// pages returns how often each job is in the pages of fleet.jobs.
func (b *bench) pages(kv ...any) map[string]int {
	b.Helper()
	seen := map[string]int{}
	page := ""
	for range 100 {
		m := b.mustListJobs(loadsOf{}, append([]any{"page", page}, kv...)...)
		for _, e := range m.List("jobs") {
			seen[e.(*value.Map).Str("jid")]++
		}
		if page = m.Str("next"); page == "" {
			return seen
		}
	}
	b.Fatal("the pages do not end")
	return nil
}

// TestJobsOfOneMoment: returns that came at one moment do not bring their job into two pages, or into none.
func TestJobsOfOneMoment(t *testing.T) {
	b := newBench(t)
	made := map[string]bool{}
	moment := start.Add(time.Hour)
	for range 10 {
		first := b.archived("web1", "state.apply", "", states("a=ok"))
		made[first.JID] = true
		for _, minion := range []string{"web1", "db1", "web2"} {
			one := b.archived(minion, "state.apply", "", states("a=ok"))
			one.JID = first.JID
			one.Time = moment
			b.add(one)
		}
	}

	for _, minion := range []string{"", "web*"} {
		seen := b.pages("limit", 3, "minion", minion)
		for jid := range made {
			if seen[jid] != 1 {
				t.Errorf("minion=%s: %s is there %d times", minion, jid, seen[jid])
			}
		}
	}
}

// busyStore is a Store to which a return comes after each query.
type busyStore struct {
	Store
	arrive func()
}

func (s *busyStore) Query(ctx context.Context, f history.Filter, limit int, from history.Cursor) (history.Page, error) {
	page, err := s.Store.Query(ctx, f, limit, from)
	s.arrive()
	return page, err
}

// TestJobsWhileReturnsArrive: new jobs shift no job from one page into the next one.
func TestJobsWhileReturnsArrive(t *testing.T) {
	b := newBench(t)
	for range 20 {
		b.job("state.apply", "alice", "web1")
	}
	busy := &busyStore{Store: b.store}
	busy.arrive = func() { check.Must(t, b.store.Append(*b.laterRun())) }
	b.recorder.cfg.Store = busy

	for jid, n := range b.pages("limit", 4) {
		if n != 1 {
			t.Errorf("%s is there %d times", jid, n)
		}
	}
}

// laterRun returns a run of a new job.
func (b *bench) laterRun() *history.Run {
	b.now = b.now.Add(time.Minute)
	return &history.Run{Minion: "web1", JID: jobs.FromTime(b.now), Function: "test.ping", Time: b.now}
}
