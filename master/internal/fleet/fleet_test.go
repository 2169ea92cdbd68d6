package fleet

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/jobs"
	"saltern/master/msgpack"
	"saltern/master/value"
)

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// bench has a Recorder on a real history, and adds runs to it.
type bench struct {
	*testing.T
	dir      string
	store    *history.Store
	recorder *Recorder
	now      time.Time
	jid      string // of the last run
	loads    map[string]*value.Map
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, dir: t.TempDir(), now: start, loads: map[string]*value.Map{}}
	b.open()
	t.Cleanup(func() { _ = b.store.Close() })
	return b
}

func (b *bench) clock() time.Time { return b.now }

func (b *bench) open() {
	b.Helper()
	log := slog.New(slog.DiscardHandler)
	var err error
	late := func() time.Time { return start.Add(30 * day) } // the history reads its clock in a goroutine of its own
	if b.store, err = history.Open(history.Config{Dir: b.dir + "/history", Now: late, Log: log}); err != nil {
		b.Fatal(err)
	}
	cfg := Config{Store: b.store, Dir: b.dir, Now: b.clock, Log: log}
	if b.recorder, err = New(b.Context(), cfg); err != nil {
		b.Fatal(err)
	}
}

// reopen opens the history and the table again, as after a crash.
func (b *bench) reopen() {
	b.Helper()
	if err := b.store.Close(); err != nil {
		b.Fatal(err)
	}
	b.open()
}

// states returns the return of a run, with a state for each text: "id=ok", "id=changed", "id=would"
// or "id=failed".
func states(texts ...string) *value.Map {
	out := &value.Map{}
	for i, text := range texts {
		id, word, _ := strings.Cut(text, "=")
		one := value.NewMap("result", true, "changes", &value.Map{}, "comment", "comment of "+id, "duration", 1.5,
			"__id__", id, "__sls__", "web", "__run_num__", i, "name", id)
		switch word {
		case "changed":
			one.Set("changes", value.NewMap("diff", "--- \n+++ \n@@\n-old "+id+"\n+new "+id+"\n"))
		case "would":
			one.Set("result", nil)
			one.Set("changes", value.NewMap("diff", "-old "+id))
		case "failed":
			one.Set("result", false)
		}
		out.Set("file_|-"+id+"_|-"+id+"_|-managed", one)
	}
	return out
}

// archived returns a return for the recorder, of a new job.
func (b *bench) archived(minion, fun, revision string, ret any, arg ...any) jobs.Archived {
	b.Helper()
	b.now = b.now.Add(time.Minute)
	b.jid = jobs.FromTime(b.now)
	content := value.NewMap("return", ret, "retcode", 0, "success", true)
	if revision != "" {
		content.Set(summary.RevisionField, revision)
	}
	packed, err := msgpack.Marshal(content, msgpack.Modern)
	if err != nil {
		b.Fatal(err)
	}
	load := value.NewMap("fun", fun, "user", "alice", "arg", arg)
	b.loads[b.jid] = load
	return jobs.Archived{
		JID:    b.jid,
		Minion: minion,
		Time:   b.now,
		Return: packed,
		Load:   func() *value.Map { return load },
		LoadOf: func(jid string) *value.Map { return b.loads[jid] },
	}
}

func (b *bench) add(a jobs.Archived) {
	b.Helper()
	if err := b.recorder.Add(a); err != nil {
		b.Fatal(err)
	}
}

// offer adds a return that the history may leave out.
func (b *bench) offer(a jobs.Archived) {
	b.Helper()
	if err := b.recorder.Add(a); err != nil && !errors.Is(err, jobs.ErrLeftOut) {
		b.Fatal(err)
	}
}

func (b *bench) highstate(minion, revision string, texts ...string) {
	b.Helper()
	b.add(b.archived(minion, "state.apply", revision, states(texts...)))
}

// causes returns the causes of the changes in the last run of a minion: "id cause".
func (b *bench) causes(minion string) (out []string) {
	b.Helper()
	last, ok := b.recorder.Table().Last(minion)
	if !ok {
		b.Fatal("the table has no", minion)
	}
	for _, s := range last.Summary.ChangedStates {
		out = append(out, s.ID+" "+s.Cause.String())
	}
	return out
}

func (b *bench) wantCauses(minion string, want ...string) {
	b.Helper()
	if got := b.causes(minion); !slices.Equal(got, want) {
		b.Errorf("causes %q, want %q", got, want)
	}
}

func TestCausesOfChanges(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=changed", "b=changed")
	b.wantCauses("web1", "a unknown", "b unknown")
	b.highstate("web1", "r1", "a=ok", "b=ok")
	b.wantCauses("web1")
	b.highstate("web1", "r1", "a=changed", "b=ok")
	b.wantCauses("web1", "a drift")
	b.highstate("web1", "r1", "a=changed", "b=ok")
	b.wantCauses("web1", "a recurring")
	b.highstate("web1", "r2", "a=changed", "b=ok")
	b.wantCauses("web1", "a new files")
	b.highstate("web1", "r2", "a=ok", "b=failed")
	b.highstate("web1", "r2", "a=changed", "b=changed")
	b.wantCauses("web1", "a drift", "b unknown")
}

func TestRunWithoutRevisionIsNeverDrift(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=ok")
	b.highstate("web1", "", "a=changed")
	b.wantCauses("web1", "a unknown")
	b.highstate("web1", "r1", "a=changed")
	b.wantCauses("web1", "a unknown")
}

func TestDriftThatATestFinds(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=ok", "b=ok")
	b.add(b.archived("web1", "state.apply", "r1", states("a=would", "b=ok"), "test=True"))
	b.wantCauses("web1", "a drift")

	list, more, err := NewFleet(b.recorder, accepted{"web1"}, nil, b.clock).Drift(t.Context(), history.Filter{}, 10)
	if err != nil || more || len(list) != 1 || list[0].Corrected || list[0].State.Changes != "-old a" {
		t.Fatalf("%+v, %v, %v", list, more, err)
	}

	// A test does not bring the minion into its state: the run after it finds the same drift.
	b.highstate("web1", "r1", "a=changed", "b=ok")
	b.wantCauses("web1", "a drift")
	list, more, err = NewFleet(b.recorder, accepted{"web1"}, nil, b.clock).Drift(t.Context(), history.Filter{}, 10)
	if err != nil || more || len(list) != 1 || !list[0].Corrected {
		t.Errorf("the same drift twice: %+v, %v, %v", list, more, err)
	}
}

// TestDriftAfterATestThatFoundAnother: drift that a test finds and somebody undoes stays in the list when the state
// drifts once more: a run of the same states has found it in order. A run of other states tells nothing.
func TestDriftAfterATestThatFoundAnother(t *testing.T) {
	for between, want := range map[string]int{"a=ok b=ok": 2, "a=ok": 1, "": 1} {
		t.Run(between, func(t *testing.T) {
			b := newBench(t)
			b.highstate("web1", "r1", "a=ok", "b=ok")
			b.add(b.archived("web1", "state.apply", "r1", states("a=would", "b=ok"), "test=True"))
			if between != "" {
				b.highstate("web1", "r1", strings.Fields(between)...)
			}
			b.add(b.archived("web1", "state.apply", "r1", states("a=would", "b=ok"), "test=True"))
			b.highstate("web1", "r1", "a=changed", "b=ok")

			list, more, err := NewFleet(b.recorder, accepted{"web1"}, nil, b.clock).Drift(t.Context(), history.Filter{}, 10)
			if err != nil || more || len(list) != want || !list[0].Corrected || want > 1 && list[1].Corrected {
				t.Errorf("%+v, %t, %v", list, more, err)
			}
		})
	}
}

// TestDriftAfterADeployment: what the first run, or one with new files, changes is no drift. One change by hand
// afterwards is drift, which a test may find first; only a second one in a row is recurring.
func TestDriftAfterADeployment(t *testing.T) {
	b := newBench(t)
	for _, revision := range []string{"r1", "r2"} {
		b.highstate("web1", revision, "a=changed", "b=changed")
		b.add(b.archived("web1", "state.apply", revision, states("a=would", "b=ok"), "test=True"))
		b.wantCauses("web1", "a drift")
		b.highstate("web1", revision, "a=changed", "b=ok")
		b.wantCauses("web1", "a drift")
		b.highstate("web1", revision, "a=changed", "b=ok")
		b.wantCauses("web1", "a recurring")
	}
	list, _, err := NewFleet(b.recorder, accepted{"web1"}, nil, b.clock).Drift(t.Context(), history.Filter{}, 10)
	if err != nil || len(list) != 4 {
		t.Errorf("%d drifts, %v", len(list), err)
	}
}

func TestTestOfNewFilesIsNoDrift(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=ok")
	b.add(b.archived("web1", "state.apply", "r2", states("a=would"), value.NewMap("__kwarg__", true, "test", true)))
	b.wantCauses("web1", "a new files")
	b.highstate("web1", "r2", "a=changed")
	b.wantCauses("web1", "a new files")
}

func TestOnlyRunsOfTheSameStatesAreCompared(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=ok")
	b.add(b.archived("web1", "state.apply", "r1", states("b=changed"), "other"))
	b.wantCauses("web1", "b unknown")
	b.add(b.archived("web1", "state.sls", "r1", states("b=changed"), "other"))
	b.wantCauses("web1", "b drift")
	b.add(b.archived("web1", "state.apply", "r1", states("b=changed"), value.NewMap("__kwarg__", true, "mods", "other")))
	b.wantCauses("web1", "b recurring")
	b.add(b.archived("web1", "state.highstate", "r1", states("a=changed")))
	b.wantCauses("web1", "a drift")
}

func TestOtherFunctionsLeaveTheLastRun(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=failed")
	b.add(b.archived("web1", "test.ping", "", true))
	last, _ := b.recorder.Table().Last("web1")
	if last.Answer.Function != "test.ping" || last.Answer.Result != summary.OK {
		t.Errorf("last answer %+v", last.Answer)
	}
	if last.Run.Function != "state.apply" || last.Run.Result != summary.Failed || last.Summary.Failed != 1 {
		t.Errorf("last run %+v, %+v", last.Run, last.Summary)
	}
}

// TestLateRunDoesNotDisplaceANewerOne: a node that was away gets runs in another order.
func TestLateRunDoesNotDisplaceANewerOne(t *testing.T) {
	b := newBench(t)
	first := b.archived("web1", "state.apply", "r1", states("a=ok"))
	late := b.archived("web1", "state.apply", "r1", states("a=failed"))
	last := b.archived("web1", "state.apply", "r1", states("a=changed"))
	for _, a := range []jobs.Archived{first, last, late} {
		b.add(a)
	}
	if got, _ := b.recorder.Table().Last("web1"); got.Run.JID != last.JID || got.Run.Result != summary.Changed {
		t.Errorf("last run %+v", got.Run)
	}
}

// TestDriftOfALateRun: a node that was away takes new runs before those that it missed, and tells the same
// drift as the others.
func TestDriftOfALateRun(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=ok", "b=ok")
	first := b.archived("web1", "state.apply", "r1", states("a=changed", "b=ok"))
	second := b.archived("web1", "state.apply", "r1", states("a=changed", "b=changed"))
	b.highstate("web1", "r1", "a=ok", "b=ok")
	b.add(first)
	b.add(second)

	list, _, err := NewFleet(b.recorder, accepted{"web1"}, nil, b.clock).Drift(t.Context(), history.Filter{}, 10)
	var got []string
	for _, d := range list {
		got = append(got, d.JID+" "+d.State.ID+" "+d.State.Cause.String())
	}
	slices.Sort(got)
	want := []string{first.JID + " a drift", second.JID + " a recurring", second.JID + " b drift"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %q, want %q", err, got, want)
	}
}

func TestTableAfterACrash(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=ok")
	b.highstate("web2", "r1", "a=failed")
	if err := b.recorder.Sync(); err != nil {
		t.Fatal(err)
	}

	// The journal adds again what the table did not have when it was saved last.
	drift := b.archived("web1", "state.apply", "r1", states("a=changed"))
	b.add(drift)
	want := b.recorder.Table().All()
	b.reopen()
	if got := b.recorder.Table().All(); !reflect.DeepEqual(got, want) {
		t.Errorf("saved table and newest run of the history:\n%+v, want\n%+v", got, want)
	}
	b.add(drift)
	if got := b.recorder.Table().All(); !reflect.DeepEqual(got, want) {
		t.Errorf("table after the repeat:\n%+v, want\n%+v", got, want)
	}
	b.wantCauses("web1", "a drift")

	page, err := b.store.Query(t.Context(), history.Filter{}, 10, "")
	if err != nil || len(page.Runs) != 3 {
		t.Fatalf("%d runs, %v, want 3", len(page.Runs), err)
	}
}

func TestTableIsMadeFromTheHistory(t *testing.T) {
	for _, file := range []string{"", "damaged"} {
		t.Run("file "+file, func(t *testing.T) {
			b := newBench(t)
			b.highstate("web1", "r1", "a=ok")
			b.highstate("web1", "r1", "a=failed")
			b.add(b.archived("web1", "test.ping", "", true))
			b.highstate("web2", "r1", "a=changed")
			want := b.recorder.Table().All()
			if file != "" {
				if err := writeFile(b.recorder.path(), file); err != nil {
					t.Fatal(err)
				}
			}
			b.reopen()
			if got := b.recorder.Table().All(); !reflect.DeepEqual(got, want) {
				t.Errorf("table:\n%+v, want\n%+v", got, want)
			}
		})
	}
}

func TestPollsAndRunnersAreLeftOut(t *testing.T) {
	b := newBench(t)
	for _, function := range []string{"saltutil.find_job", "runner.fleet.runs", "wheel.key.list_all"} {
		b.add(b.archived("web1", function, "", true))
	}
	page, err := b.store.Query(t.Context(), history.Filter{}, 10, "")
	if err != nil || len(page.Runs) != 0 || b.recorder.Table().Len() != 0 {
		t.Errorf("%d runs, %d minions, %v", len(page.Runs), b.recorder.Table().Len(), err)
	}
}

// failingStore refuses appends with an error.
type failingStore struct {
	Store
	err error
}

func (s *failingStore) Append(run history.Run) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.Append(run)
}

func TestRunThatTheHistoryDoesNotTakeIsNotInTheTable(t *testing.T) {
	b := newBench(t)
	store := &failingStore{b.store, syscall.ENOSPC}
	b.recorder.cfg.Store = store
	a := b.archived("web1", "state.apply", "r1", states("a=changed"))
	if err := b.recorder.Add(a); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if n := b.recorder.Table().Len(); n != 0 {
		t.Fatalf("the table has %d minions", n)
	}

	store.err = fmt.Errorf("%w: bad id", history.ErrRun)
	if err := b.recorder.Add(a); !errors.Is(err, jobs.ErrLeftOut) || b.recorder.Stats().Refused != 1 {
		t.Fatal(err, b.recorder.Stats())
	}
	store.err = nil
	b.add(a)
	b.wantCauses("web1", "a unknown")
}

// The history has the summary of a large return only, and says so.
func TestLargeReturnIsLeftOut(t *testing.T) {
	b := newBench(t)
	a := b.archived("web1", "test.ping", "r1", states("a=ok"))
	a.Return = append(a.Return, make([]byte, history.MaxReturn)...)
	if err := b.recorder.Add(a); !errors.Is(err, jobs.ErrLeftOut) {
		t.Error(err)
	}
	if b.store.Stats().Runs != 1 {
		t.Error("the history lacks the run")
	}
}

func TestEntriesKeepTheirBound(t *testing.T) {
	b := newBench(t)
	long := strings.Repeat("x", 150)
	var many []string
	for i := range 60 {
		word := [...]string{"changed", "failed", "would", "ok"}[i%4]
		many = append(many, fmt.Sprintf("%d%s=%s", i, long, word))
	}
	for i := range 20 {
		b.add(b.archived("web1", "state.apply", long, states(many...), fmt.Sprint("sls", i)))
	}

	e := b.recorder.Table().entries["web1"]
	if e.size() > maxEntry {
		t.Errorf("an entry of %d bytes", e.size())
	}
	last, _ := b.recorder.Table().Last("web1")
	if s := last.Summary; s.Changed != 15 || s.Failed != 15 || s.WouldChange != 15 || s.OK != 15 {
		t.Errorf("counts %+v", s)
	}
	if len(last.Summary.FailedStates) == 0 || len(last.Summary.ChangedStates) == 0 {
		t.Error("no state is left")
	}
}

type accepted []string

func (a accepted) Accepted() []string { return a }

func (a accepted) IsSyndic(id string) bool { return strings.HasPrefix(id, "syndic") }

func TestSummaryOfAllMinions(t *testing.T) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=ok", "b=ok")
	b.highstate("web2", "r1", "a=failed", "b=changed")
	b.highstate("web1", "r1", "a=changed", "b=ok")
	b.highstate("web3", "r1", "a=failed", "b=failed")
	b.add(b.archived("db1", "test.ping", "", true))

	minions := accepted{"web1", "web2", "web3", "db1", "new"}
	s, err := NewFleet(b.recorder, minions, nil, b.clock).Summary(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	if s.Minions != 5 || s.NeverRun != 2 || s.Silent != 1 || s.Runs != 5 || s.Partial {
		t.Errorf("%+v", s)
	}
	if want := (map[summary.Result]int{summary.Changed: 1, summary.Failed: 2}); !reflect.DeepEqual(s.Results, want) {
		t.Errorf("results %v, want %v", s.Results, want)
	}
	if want := (map[string]int{"ok": 3, "changed": 2, "failed": 3, "would change": 0}); !reflect.DeepEqual(s.States, want) {
		t.Errorf("states %v, want %v", s.States, want)
	}
	if !slices.Equal(s.Drifted, []string{"web1"}) || !slices.Equal(s.Failed, []string{"web2", "web3"}) {
		t.Errorf("drifted %q, failed %q", s.Drifted, s.Failed)
	}
	figures := NewFleet(b.recorder, minions, nil, b.clock).Figures()
	wantFigures := &control.Fleet{
		LastRuns: map[string]int{"changed": 1, "failed": 2, "never": 2},
		Ages:     map[string]int{"hour": 3},
		Drifted:  1,
		Functions: []control.FleetFunction{
			{
				Function: "state.apply",
				Runs:     map[string]uint64{"ok": 1, "changed": 1, "failed": 2},
				States:   map[string]uint64{"ok": 3, "changed": 2, "failed": 3},
			},
			{Function: "test.ping", Runs: map[string]uint64{"ok": 1}, States: map[string]uint64{}},
		},
		FailedStates: []control.FailedState{{State: "file.managed a", Minions: 2}, {State: "other", Minions: 1}},
	}
	if !reflect.DeepEqual(figures, wantFigures) {
		t.Errorf("figures %+v, want %+v", figures, wantFigures)
	}
	worst := []StateCount{
		{State: "file.managed a", Failures: 2, Minions: 2, Comment: "comment of a"},
		{State: "file.managed b", Failures: 1, Minions: 1, Comment: "comment of b"},
	}
	if !reflect.DeepEqual(s.Worst, worst) {
		t.Errorf("worst %+v", s.Worst)
	}
}

func TestFunctionsThatAreCountedAreBounded(t *testing.T) {
	c := counter{functions: map[string]*counts{}}
	for i := range 200 {
		c.count(&history.Run{Function: fmt.Sprintf("f%03d", i)}, false)
	}
	got := c.figures()
	last := got[len(got)-1]
	if len(got) != maxFunctions+1 || last.Function != "other" || last.Runs["ok"] != 150 {
		t.Errorf("%d functions, the last %+v", len(got), last)
	}
}

func FuzzParseTable(f *testing.F) {
	table := newTable()
	run := history.Run{Minion: "web1", JID: "20261129120000000000", Time: start, Function: "state.apply"}
	run.Summary = summary.Of("state.apply", states("a=changed", "b=failed"), 0, true)
	table.add(&run, 7, start)
	packed, _ := table.pack()
	f.Add(packed[:len(packed)-4])
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _, _ = parseTable(sealed(body))
	})
}
