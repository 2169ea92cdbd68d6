package fleet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/jobs"
	"saltern/master/value"
)

// runAt returns a run of states with a result.
func runAt(at time.Time, result summary.Result) *history.Run {
	return &history.Run{Minion: "web1", Time: at, Summary: summary.Summary{Result: result}}
}

// TestDaysDoNotDependOnTheOrder: two masters get the same runs in another order, some of them twice.
func TestDaysDoNotDependOnTheOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	now := start
	for range 200 {
		var runs []*history.Run
		for range 60 {
			at := now.Add(-time.Duration(random.IntN(45*24)) * time.Hour)
			runs = append(runs, runAt(at, summary.Result(random.IntN(5))))
		}

		var one, two days
		for _, run := range runs {
			one.enter(run, true, now)
		}
		runs = append(runs, runs[:20]...)
		random.Shuffle(len(runs), func(i, k int) { runs[i], runs[k] = runs[k], runs[i] })
		for _, run := range runs {
			two.enter(run, true, now)
		}
		if one != two {
			t.Fatalf("%+v\n%+v", one, two)
		}
	}
}

func TestDaysKeepTheWorstResult(t *testing.T) {
	var d days
	d.enter(runAt(start, summary.Failed), true, start)
	d.enter(runAt(start.Add(-time.Hour), summary.OK), true, start)
	d.enter(runAt(start, summary.OK), false, start)
	d.enter(runAt(start.Add(-day), summary.OK), false, start)
	today := dayOf(start)
	got := []dayResult{d.on(today), d.on(today - 1), d.on(today - 2), d.on(today + 1), d.on(today - keptDays)}
	want := []dayResult{dayResultOf(summary.Failed), answered, absent, absent, absent}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if d.enter(runAt(start, summary.Failed), true, start) {
		t.Error("the same run again changes something")
	}
}

// TestDaysOfAClockThatWasAhead: a run of next year does not hide the days of this one.
func TestDaysOfAClockThatWasAhead(t *testing.T) {
	var d days
	d.enter(runAt(start.Add(365*day), summary.Failed), true, start)
	if d != (days{}) {
		t.Errorf("a run that is ahead is entered: %+v", d)
	}

	d.enter(runAt(start.Add(365*day), summary.Failed), true, start.Add(365*day)) // this master's clock was ahead
	d.enter(runAt(start, summary.OK), true, start)
	if got := d.on(dayOf(start)); got != dayResultOf(summary.OK) {
		t.Errorf("today is %d after the clock was put right", got)
	}
	d.enter(runAt(time.Time{}, summary.OK), true, start)
	d.enter(runAt(time.Unix(-1, 0), summary.OK), true, start)
	if got := d.on(dayOf(start)); got != dayResultOf(summary.OK) {
		t.Errorf("a run without time changes today: %d", got)
	}
}

// TestDaysOfAClockThatWasBack: a run that seems to be ahead leaves the days that are not.
func TestDaysOfAClockThatWasBack(t *testing.T) {
	var d days
	at := func(number int) time.Time { return start.Add(time.Duration(number) * day) }
	for number := 1; number <= 30; number++ {
		d.enter(runAt(at(number), summary.OK), true, at(number))
	}
	whole := d
	if d.enter(runAt(at(30), summary.OK), true, at(10)) || d != whole {
		t.Errorf("a repeated run changes the days while the clock is back: %+v", d)
	}

	// A new run of the time that the clock shows.
	d.enter(runAt(at(10), summary.Failed), true, at(10))
	for number := 1; number <= 30; number++ {
		want := dayResultOf(summary.OK)
		switch {
		case number == 10:
			want = dayResultOf(summary.Failed)
		case number > 10:
			want = absent
		}
		if got := d.on(dayOf(at(number))); got != want {
			t.Errorf("day %d: %d, want %d", number, got, want)
		}
	}
}

func TestTrend(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=ok", "b=ok")
	b.highstate("web2", "r1", "a=failed", "b=failed")
	b.highstate("web3", "r1", "b=failed")
	b.now = b.now.Add(2 * day)
	b.highstate("web1", "r1", "a=changed", "b=ok")
	b.add(b.archived("web3", "test.ping", "", true))
	minions := accepted{"web3", "web2", "web1", "new"}

	got := b.mustCall(minions, "fleet.trend")
	want := "[{'day': '2026-11-29', 'ok': 1, 'changed': 0, 'would_change': 0, 'failed': 2, 'error': 0, 'answered': 0, 'absent': 1}, " +
		"{'day': '2026-11-30', 'ok': 0, 'changed': 0, 'would_change': 0, 'failed': 0, 'error': 0, 'answered': 0, 'absent': 4}, " +
		"{'day': '2026-12-01', 'ok': 0, 'changed': 1, 'would_change': 0, 'failed': 0, 'error': 0, 'answered': 1, 'absent': 2}]"
	if days := value.Repr(got.List("days")); days != want {
		t.Errorf("days\n%s, want\n%s", days, want)
	}
	if last := value.Repr(got.Map("last_run")); last != "{'ok': 0, 'changed': 1, 'would_change': 0, 'failed': 2, 'error': 0, 'never': 1}" {
		t.Errorf("last runs %s", last)
	}
	worst, _ := got.List("worst_states")[0].(*value.Map)
	if worst.Str("id") != "b" || worst.Value("minions") != int64(2) || worst.Str("minion") != "web2" {
		t.Errorf("worst %s", value.Repr(got.List("worst_states")))
	}
	drift, _ := got.List("drift")[0].(*value.Map)
	if drift.Str("minion") != "web1" || drift.Str("changes") != "-old a\n+new a" || got.Value("drifted") != int64(1) {
		t.Errorf("drift %s", value.Repr(got.List("drift")))
	}
	if slow := got.List("slowest_states"); len(slow) != 2 {
		t.Errorf("slowest %s", value.Repr(slow))
	}

	// The days survive a crash, with the saved table and without one.
	if err := b.recorder.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"saved", "damaged"} {
		if file == "damaged" {
			if err := writeFile(b.recorder.path(), file); err != nil {
				t.Fatal(err)
			}
		}
		b.reopen()
		if days := value.Repr(b.mustCall(minions, "fleet.trend").List("days")); days != want {
			t.Errorf("%s: days\n%s, want\n%s", file, days, want)
		}
	}
}

// packBefore writes a table as the version before did.
func packBefore(t *Table) []byte {
	b := binary.AppendUvarint([]byte(savedBefore), uint64(len(t.entries)))
	for minion, e := range t.entries {
		b = appendText(b, minion)
		b = appendAnswer(b, &e.answer)
		b = appendAnswer(b, &e.run)
		b = append(appendText(b, string(e.packed)), flag(e.drifted))
		b = binary.AppendUvarint(b, uint64(len(e.baselines)))
		for i := range e.baselines {
			b = appendBaseline(b, &e.baselines[i])
		}
	}
	return sealed(b)
}

// TestTableOfTheVersionBefore: its baselines count, and the days come from the history.
func TestTableOfTheVersionBefore(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=ok")
	b.highstate("web2", "r1", "a=failed")
	want := b.recorder.Table().All()
	if err := writeFile(b.recorder.path(), string(packBefore(b.recorder.Table()))); err != nil {
		t.Fatal(err)
	}
	b.reopen()
	if got := b.recorder.Table().All(); !reflect.DeepEqual(got, want) {
		t.Errorf("table:\n%+v, want\n%+v", got, want)
	}
	b.highstate("web1", "r1", "a=changed")
	b.wantCauses("web1", "a drift")
}

// unreadable is a Store of which only the latest two runs can be read.
type unreadable struct{ Store }

func (s unreadable) Query(ctx context.Context, f history.Filter, _ int, from history.Cursor) (history.Page, error) {
	if from != "" {
		return history.Page{}, errors.New("input/output error")
	}
	return s.Store.Query(ctx, f, 2, from)
}

// TestDaysThatWereNotRead: a day of which some runs were not read does not show their minions as absent.
func TestDaysThatWereNotRead(t *testing.T) {
	b := newBench(t)
	b.highstate("web2", "r1", "a=ok")
	b.highstate("web1", "r1", "a=ok")
	b.now = b.now.Add(day)
	b.highstate("web1", "r1", "a=ok")
	if err := writeFile(b.recorder.path(), string(packBefore(b.recorder.Table()))); err != nil {
		t.Fatal(err)
	}

	cfg := b.recorder.cfg
	cfg.Store = unreadable{b.store}
	r, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.recorder = r
	if got := b.mustCall(accepted{"web1", "web2"}, "fleet.trend").List("days"); len(got) != 1 {
		t.Errorf("days %s", value.Repr(got))
	}
}

func TestBriefLastRuns(t *testing.T) {
	b, minions := busyBench(t)
	all := b.mustCall(minions, "fleet.last", "brief", true, "limit", 10_000).Map("minions")
	if all.Len() != 3 || all.Map("web1").Value("drifted") != int64(1) || all.Map("web1").Value("changed_states") != nil {
		t.Errorf("brief: %s", value.Repr(all))
	}
	if _, err := b.call(minions, "fleet.last", "limit", 10_000); err == nil || !strings.Contains(err.Error(), "1000") {
		t.Errorf("10,000 whole runs: %v", err)
	}
	for state, want := range map[string]string{"a": "web1 web2", "b": "", "c": ""} {
		if got := b.mustCall(minions, "fleet.last", "state", state).Map("minions").Keys(); strings.Join(got, " ") != want {
			t.Errorf("state %s: %q", state, got)
		}
	}
}

// BenchmarkTrend measures the answer of a fleet whose runs all failed in many states.
func BenchmarkTrend(b *testing.B) {
	for _, n := range []int{2000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := newTable()
			var minions []string
			for i := range n {
				run := history.Run{Minion: fmt.Sprintf("web%06d", i), JID: jobs.FromTime(start), Time: start, Function: "state.apply"}
				run.Summary = summary.Of("state.apply", states("a=changed", "b=failed", fmt.Sprint("c", i, "=failed"), "d=ok"), 0, true)
				table.add(&run, 7, start)
				minions = append(minions, run.Minion)
			}
			for b.Loop() {
				all, from := table.snapshot(minions)
				trendOf(all, from, start)
			}
		})
	}
}
