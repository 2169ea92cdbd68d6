package schedule

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/value"
)

// startingRuns answer one call after the other with results.
type startingRuns struct {
	*bench
	results []any
	calls   int
	latest  string // id of the job that was started last
}

func (r *startingRuns) Call(context.Context, string, []any, *value.Map) (any, error) {
	result := r.results[min(r.calls, len(r.results)-1)]
	r.calls++
	if m, ok := result.(*value.Map); ok && m.Value("jid") == true {
		r.latest = time.Now().UTC().Format("20060102150405") + "000001"
		return value.NewMap("jid", r.latest), nil
	}
	if err, ok := result.(error); ok {
		return nil, err
	}
	return result, nil
}

// TestJobOfLastRun: the list names the job that the last run of a saved job has started, and none of a run
// before, of another function, or that a result makes up.
func TestJobOfLastRun(t *testing.T) {
	started := func(jid any) any { return value.NewMap("job", "x", "jid", jid) }
	const latest = "latest"
	job := started(true) // the id is that of its time
	for name, c := range map[string]struct {
		fun     string
		results []any
		foreign bool // another master owns the schedule
		want    string
	}{
		"saved job":        {"saved.run", []any{job}, false, latest},
		"the last one":     {"saved.run", []any{started("20000101000000000001"), job}, false, latest},
		"the last fails":   {"saved.run", []any{job, errors.New("no minions")}, false, ""},
		"no job":           {"saved.run", []any{job, "text"}, false, ""},
		"no id":            {"saved.run", []any{started("../x")}, false, ""},
		"a number":         {"saved.run", []any{started(int64(7))}, false, ""},
		"another function": {"test.arg", []any{job}, false, ""},
		"another owner":    {"saved.run", []any{job}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				cfg := b.config(value.NewMap("e", entryOf(c.fun, "seconds", int64(10))))
				runs := &startingRuns{bench: b, results: c.results}
				cfg.Runs = runs
				owns := true
				cfg.Own = func() (uint64, bool) { return 1, owns }
				s := New(cfg)
				b.runFor(s, 35*time.Second)

				owns = !c.foreign
				want := c.want
				if want == latest {
					want = runs.latest
				}
				list, err := s.List(1)
				if err != nil || len(list.Entries) != 1 || list.Entries[0].LastRun.IsZero() {
					t.Fatalf("%+v, %v", list, err)
				}
				if got := list.Entries[0].LastJob; got != want {
					t.Errorf("job %q, not %q", got, want)
				}
				if got := listOf(list).Map("entries").Map("e").Str("last_jid"); got != want {
					t.Errorf("schedule.list: job %q, not %q", got, want)
				}
			})
		})
	}
}

// TestJobIsKnownElsewhere: the other masters know the job of the last run, too, also when its owner has been
// killed and one of them has taken over.
func TestJobIsKnownElsewhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedule")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		m := &masters{terms: map[int]uint64{1: 1}}
		runs := &startingRuns{bench: b, results: []any{value.NewMap("jid", true)}}
		open := func(node int) *Schedule {
			cfg := b.config(value.NewMap("e", entryOf("saved.run", "seconds", int64(10))))
			cfg.Runs = runs
			cfg.Records = OpenRecords(path)
			cfg.Own = m.own(node)
			return New(cfg)
		}
		check := func(who string, s *Schedule, want string) {
			t.Helper()
			list, err := s.List(1)
			if err != nil || len(list.Entries) != 1 {
				t.Fatalf("%s: %+v, %v", who, list, err)
			}
			if got := list.Entries[0].LastJob; got != want || want == "" {
				t.Errorf("%s knows the job %q, not %q", who, got, want)
			}
		}

		owner, other := open(1), open(2)
		b.runFor(owner, 35*time.Second)
		latest := runs.latest
		check("the owner", owner, latest)
		check("another master", other, latest)
		check("one that was started again", open(3), latest)

		m.set(1, 0)
		m.set(2, 2)
		b.runFor(other, 2*time.Second)
		check("the new owner", other, latest)
		check("the old owner", owner, latest)
	})
}

// TestJobOfAClockThatWasAhead: a job that was started by a clock a year ahead does not stay the last one.
func TestJobOfAClockThatWasAhead(t *testing.T) {
	now := time.Date(2026, 3, 3, 14, 0, 0, 0, time.UTC)
	const ahead, before, latest = "20270303140000000001", "20260303133000000001", "20260303135900000001"
	for name, c := range map[string]struct{ known, recorded, want string }{
		"recorded":            {before, ahead, before},
		"known":               {ahead, latest, latest},
		"both":                {ahead, ahead, ""},
		"none":                {"", latest, latest},
		"a later one":         {before, latest, latest},
		"an earlier one":      {latest, before, latest},
		"seconds ahead of us": {before, "20260303140030000001", "20260303140030000001"},
	} {
		t.Run(name, func(t *testing.T) {
			var known tally
			if c.known != "" {
				known.noteJob(value.NewMap("jid", c.known))
			}
			known.adoptJob(c.recorded, now)
			if got := jobSince(known.knownJob(), now.Add(-time.Hour), now); got != c.want {
				t.Errorf("the last job is %q, not %q", got, c.want)
			}
		})
	}
}
