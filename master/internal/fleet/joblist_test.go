package fleet

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"saltern/master/jobs"
	"saltern/master/runner"
	"saltern/master/value"
)

// loadsOf has loads by job id.
type loadsOf map[string]*value.Map

func (l loadsOf) Load(_ context.Context, jid string) (*value.Map, error) { return l[jid], nil }

func (b *bench) jobList(cache loads, kv ...any) (*value.Map, error) {
	b.Helper()
	f := NewFleet(b.recorder, accepted{}, b.clock)
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
