package history

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/history/summary"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
)

// begin is the time of the first run of most tests.
var begin = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// open opens a history of small segments, which is closed when the test ends.
func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	cfg.segmentRuns = cmp.Or(cfg.segmentRuns, 60)
	cfg.chunkRows = cmp.Or(cfg.chunkRows, 600)
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return begin.Add(24 * time.Hour) }
	}
	s, err := Open(cfg)
	check.Must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// jidAt returns the job id of a time.
func jidAt(t time.Time) string {
	return strings.Replace(t.UTC().Format("20060102150405.000000"), ".", "", 1)
}

// plainRun returns a run of a minion at a time, in a job of its own.
func plainRun(minion string, at time.Time) Run {
	return Run{
		Minion:   minion,
		JID:      jidAt(at),
		User:     "root",
		Function: "test.ping",
		Time:     at,
		Return:   []byte("return of " + minion),
	}
}

// randomRun returns a run that shares its fields with many others.
func randomRun(r *rand.Rand, i int) Run {
	at := begin.Add(time.Duration(i) * time.Second)
	switch r.IntN(20) {
	case 0: // the clock was wrong
		at = at.Add(time.Duration(r.IntN(7200)-3600) * time.Second)
	case 1, 2, 3: // several at one moment
		at = at.Truncate(time.Minute)
	}

	results := summary.Results()
	run := Run{
		Minion:   fmt.Sprintf("web%d", r.IntN(30)),
		JID:      fmt.Sprintf("%s_%d", jidAt(at.Truncate(time.Hour)), i/7),
		User:     []string{"root", "sudo_anna", ""}[r.IntN(3)],
		Function: []string{"state.apply", "test.ping", "cmd.run"}[r.IntN(3)],
		Time:     at,
		Return:   bytes.Repeat([]byte{byte(i)}, r.IntN(60)*r.IntN(60)),
	}
	run.Summary = summary.Summary{Function: run.Function, Result: results[r.IntN(len(results))], Retcode: i}
	for range r.IntN(3) {
		state := summary.State{ID: fmt.Sprintf("state %d", r.IntN(6)), Comment: "it failed"}
		run.Summary.FailedStates = append(run.Summary.FailedStates, state)
	}
	return run
}

// model is the history as a list, without any index.
type model []Run

// append adds a run if its minion has none of the job.
func (m *model) append(run Run) {
	if !slices.ContainsFunc(*m, func(x Run) bool { return x.JID == run.JID && x.Minion == run.Minion }) {
		*m = append(*m, run)
	}
}

func (m model) query(f Filter) (out []Run) {
	for _, run := range m {
		states := statesOf(&run.Summary)
		if f.Minion != "" && f.Minion != run.Minion || f.JID != "" && f.JID != run.JID ||
			f.User != "" && f.User != run.User || f.Function != "" && f.Function != run.Function ||
			f.State != "" && !slices.Contains(states, f.State) ||
			len(f.Results) > 0 && !slices.Contains(f.Results, run.Summary.Result) ||
			!f.From.IsZero() && run.Time.Before(f.From) || !f.To.IsZero() && !run.Time.Before(f.To) {
			continue
		}
		out = append(out, run)
	}
	slices.SortFunc(out, func(a, b Run) int {
		return cmp.Or(b.Time.Compare(a.Time), strings.Compare(b.JID, a.JID), strings.Compare(a.Minion, b.Minion))
	})
	return out
}

// all returns all pages of a query.
func all(t testing.TB, s *Store, f Filter, limit int) (runs []Run) {
	t.Helper()
	var from Cursor
	for {
		page, err := s.Query(await.Context(t), f, limit, from)
		check.Must(t, err)
		runs = append(runs, page.Runs...)
		if page.Next == "" {
			return runs
		}
		if len(page.Runs) > limit || len(page.Runs) == 0 {
			t.Fatalf("a page of %d runs, and another one after it", len(page.Runs))
		}
		from = page.Next
	}
}

// names returns runs as texts that show a difference.
func names(runs []Run) (out []string) {
	for _, run := range runs {
		out = append(out, fmt.Sprintf("%s %s %s %s %s %s %d states, %d: %q", run.Time.UTC().Format(time.RFC3339Nano),
			run.JID, run.Minion, run.User, run.Function, run.Summary.Result, len(run.Summary.FailedStates),
			run.Summary.Retcode, run.Return))
	}
	return out
}

func compare(t *testing.T, what string, got, want []Run) {
	t.Helper()
	g, w := names(got), names(want)
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Fatalf("%s: got %d runs, want %d; the first difference is run %d\ngot  %.300q\nwant %.300q", what,
				len(g), len(w), i, g[min(i, len(g)):], w[min(i, len(w)):])
		}
	}
}

func randomFilter(r *rand.Rand, m model) Filter {
	example := m[r.IntN(len(m))]
	f := Filter{Returns: true}
	if r.IntN(3) == 0 {
		f.Minion = example.Minion
	}
	if r.IntN(5) == 0 {
		f.JID = example.JID
	}
	if r.IntN(5) == 0 {
		f.User = example.User
	}
	if r.IntN(5) == 0 {
		f.Function = example.Function
	}
	if r.IntN(5) == 0 {
		f.State = fmt.Sprintf("state %d", r.IntN(8))
	}
	for range r.IntN(3) {
		f.Results = append(f.Results, summary.Result(r.IntN(5)))
	}
	if r.IntN(3) == 0 {
		f.From = example.Time
	}
	if r.IntN(3) == 0 {
		f.To = example.Time.Add(time.Duration(r.IntN(1000)) * time.Second)
	}
	return f
}

// TestQueryFindsWhatAListFinds appends random runs, by a clock that jumps, and compares random
// queries with those of a plain list: while runs are gathered, in sealed segments, and after a new
// start.
func TestQueryFindsWhatAListFinds(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	var m model
	for i := range 1500 {
		run := randomRun(r, i)
		check.Must(t, s.Append(run))
		m.append(run)
		if r.IntN(50) == 0 { // again, as a journal does
			check.Must(t, s.Append(m[r.IntN(len(m))]))
		}
		if r.IntN(100) == 0 {
			check.Must(t, s.Sync())
		}
		if r.IntN(300) == 0 {
			check.Must(t, s.Close())
			s = open(t, Config{Dir: dir})
		}
		if i%20 == 0 {
			f := randomFilter(r, m)
			compare(t, fmt.Sprintf("%+v", f), all(t, s, f, 1+r.IntN(40)), m.query(f))
		}
	}

	compare(t, "all runs", all(t, s, Filter{Returns: true}, 100), m.query(Filter{}))
	if st := s.Stats(); st.Segments < 10 || st.Runs != len(m) || st.Damaged != 0 || st.TornBytes != 0 {
		t.Errorf("%+v, want %d runs", st, len(m))
	}
}

func TestFilterCombinesFields(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	run := plainRun("web1", begin)
	run.Function = "test.ping,state.apply"
	run.Summary.ChangedStates = []summary.State{{ID: "nginx"}}
	run.Summary.Slowest = []summary.State{{ID: "slow"}}
	run.Summary.Result = summary.Changed
	check.Must(t, s.Append(run))

	for _, tt := range []struct {
		name  string
		f     Filter
		found bool
	}{
		{"nothing", Filter{}, true},
		{"state that changed", Filter{State: "nginx", Minion: "web1"}, true},
		{"state that was slow", Filter{State: "slow"}, false},
		{"one of two results", Filter{Results: []summary.Result{summary.Failed, summary.Changed}}, true},
		{"other result", Filter{Results: []summary.Result{summary.OK}}, false},
		{"all functions", Filter{Function: "test.ping,state.apply"}, true},
		{"one of two functions", Filter{Function: "state.apply"}, true},
		{"part of a function", Filter{Function: "apply"}, false},
		{"another function", Filter{Function: "state.sls"}, false},
		{"beginning of a name", Filter{Minion: "web"}, false},
		{"from the moment", Filter{From: begin}, true},
		{"until the moment", Filter{To: begin}, false},
		{"until far away", Filter{To: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, true},
		{"from far away", Filter{From: time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := all(t, s, tt.f, 10); len(got) == 1 != tt.found {
				t.Errorf("%d runs", len(got))
			}
		})
	}
}

func TestReturnsAreReadOnDemand(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	large := plainRun("large", begin)
	large.Return = make([]byte, MaxReturn+1)
	for _, run := range []Run{plainRun("small", begin), large} {
		check.Must(t, s.Append(run))
	}
	check.Must(t, s.Sync())

	for _, run := range all(t, s, Filter{}, 10) {
		if run.Return != nil || run.ReturnBytes == 0 {
			t.Errorf("%s: %d bytes of a return of %d", run.Minion, len(run.Return), run.ReturnBytes)
		}
	}
	if run := all(t, s, Filter{Minion: "small", Returns: true}, 10)[0]; string(run.Return) != "return of small" {
		t.Errorf("%q", run.Return)
	}
	if run := all(t, s, Filter{Minion: "large", Returns: true}, 10)[0]; run.Return != nil || run.ReturnBytes != MaxReturn+1 {
		t.Errorf("%d bytes of a return that is too large", len(run.Return))
	}
	if st := s.Stats(); st.Oversized != 1 {
		t.Errorf("%+v", st)
	}
}

// A page of large returns ends before it takes much memory.
func TestPageOfLargeReturnsIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	for i := range 6 {
		run := plainRun(fmt.Sprint("m", i), begin)
		run.Return = make([]byte, 15<<20)
		check.Must(t, s.Append(run))
	}
	page, err := s.Query(await.Context(t), Filter{Returns: true}, 100, "")
	check.Must(t, err)
	if len(page.Runs) != 3 || page.Next == "" {
		t.Errorf("%d runs, next %q", len(page.Runs), page.Next)
	}
	if got := all(t, s, Filter{Returns: true}, 100); len(got) != 6 {
		t.Errorf("%d runs on all pages", len(got))
	}
}

func TestPagesStayWholeWhileRunsComeAndGo(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	for i := range 400 {
		check.Must(t, s.Append(plainRun(fmt.Sprint("m", i), begin.Add(time.Duration(i)*time.Second))))
	}

	var got []Run
	var from Cursor
	for i := 400; ; i++ {
		page, err := s.Query(await.Context(t), Filter{}, 25, from)
		check.Must(t, err)
		got = append(got, page.Runs...)
		if from = page.Next; from == "" {
			break
		}
		check.Must(t, s.Append(plainRun(fmt.Sprint("m", i), begin.Add(time.Duration(i)*time.Second))))
		if i == 405 {
			s.writing.Lock()
			s.removeOldest(tooLarge)
			s.writing.Unlock()
		}
	}

	// Those of the first segment, which was removed, are missing at the end.
	for i, run := range got {
		if want := fmt.Sprint("m", 399-i); run.Minion != want {
			t.Fatalf("run %d is of %s, want %s", i, run.Minion, want)
		}
	}
	if len(got) < 250 || len(got) >= 400 {
		t.Errorf("%d runs", len(got))
	}
}

func TestBadRunsAndCursorsAreRefused(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	for name, run := range map[string]Run{
		"no job":          {Minion: "m"},
		"no minion":       {JID: "1"},
		"long job":        {Minion: "m", JID: strings.Repeat("1", maxJID+1)},
		"long minion":     {Minion: strings.Repeat("m", maxText+1), JID: "1"},
		"minion with \\0": {Minion: "a\x00b", JID: "1"},
	} {
		if err := s.Append(run); !errors.Is(err, ErrRun) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []Cursor{"x", "!!", "AAAA", Cursor(strings.Repeat("A", 10_000))} {
		if _, err := s.Query(await.Context(t), Filter{}, 1, c); !errors.Is(err, ErrCursor) {
			t.Errorf("%.20q: %v", c, err)
		}
	}
}

func TestRepeatedRunsAreStoredOnce(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	var runs []Run
	for i := range 500 {
		runs = append(runs, plainRun(fmt.Sprint("m", i%50), begin.Add(time.Duration(i/50)*time.Second)))
	}
	for range 2 {
		for _, run := range runs {
			check.Must(t, s.Append(run))
		}
	}
	check.Must(t, s.Close())
	s = open(t, Config{Dir: dir})
	for _, run := range runs {
		if !s.Contains(run.JID, run.Minion) {
			t.Fatalf("%s of %s is not known", run.JID, run.Minion)
		}
		check.Must(t, s.Append(run))
	}

	if s.Contains(runs[0].JID, "other") {
		t.Error("a run that was never appended is known")
	}
	if st := s.Stats(); st.Runs != 500 || st.Duplicates != 500 {
		t.Errorf("%+v", st)
	}
}

// A restore lays the files of a backup beside those of the node. Runs that are in both are found
// once.
func TestRestoredRunsAreFoundOnce(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	for i := range 150 {
		check.Must(t, s.Append(plainRun(fmt.Sprint("m", i%3), begin.Add(time.Duration(i)*time.Second))))
	}
	check.Must(t, s.Close())
	paths, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	check.Must(t, err)
	for i, path := range paths {
		b, err := os.ReadFile(path)
		check.Must(t, err)
		check.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%016d%s", 100+i, segmentSuffix)), b, 0o600))
	}

	s = open(t, Config{Dir: dir})
	for _, limit := range []int{1, 7, 1000} {
		if got := all(t, s, Filter{Minion: "m1"}, limit); len(got) != 50 {
			t.Errorf("%d runs in pages of %d", len(got), limit)
		}
	}
}

func TestFolderBelongsToOneProcess(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second one: %v", err)
	}
	check.Must(t, s.Close())
	check.Must(t, s.Close())
	if err := s.Append(plainRun("m", begin)); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	if _, err := s.Query(await.Context(t), Filter{}, 1, ""); !errors.Is(err, ErrClosed) {
		t.Errorf("query after close: %v", err)
	}
	open(t, Config{Dir: dir})
}

// Queries of many goroutines see every run that was appended before they began, while segments are
// sealed and removed.
func TestReadingWhileWriting(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				before := s.Stats().Runs
				page, err := s.Query(await.Context(t), Filter{Minion: "m3", Returns: true}, maxLimit, "")
				if err != nil {
					t.Error(err)
					return
				}
				if len(page.Runs) < before/10 {
					t.Errorf("%d runs of m3, of %d in all", len(page.Runs), before)
					return
				}
			}
		})
	}

	for i := range 3000 {
		check.Must(t, s.Append(plainRun(fmt.Sprint("m", i%10), begin.Add(time.Duration(i)*time.Second))))
		if i%500 == 0 {
			check.Must(t, s.Sync())
		}
	}
	close(stop)
	readers.Wait()
}

// newestFile returns the path of the newest segment.
func newestFile(t testing.TB, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	check.Must(t, err)
	return slices.Max(paths)
}

// A segment that ends anywhere, as after a power cut, keeps all runs of its complete chunks, and
// new runs can be appended.
func TestTornEndIsCutOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, segmentRuns: 1000})
	for i := range 40 {
		check.Must(t, s.Append(plainRun(fmt.Sprint("m", i), begin)))
		if i%10 == 9 {
			check.Must(t, s.Sync())
		}
	}
	ends := []int64{int64(segmentHead)}
	for _, c := range s.newest.chunks[1:] {
		ends = append(ends, c.offset)
	}
	ends = append(ends, s.newest.bytes)
	check.Must(t, s.Close())
	whole, err := os.ReadFile(newestFile(t, dir))
	check.Must(t, err)

	for size := rand.IntN(20); size <= len(whole); size += 1 + rand.IntN(20) {
		for _, zeros := range []int{0, 5000} {
			torn := t.TempDir()
			path := filepath.Join(torn, "0000000000000001"+segmentSuffix)
			content := append(slices.Clone(whole[:size]), make([]byte, zeros)...)
			check.Must(t, os.WriteFile(path, content, 0o600))
			s, err := Open(Config{Dir: torn, Now: func() time.Time { return begin }})
			check.Must(t, err)
			chunks := 0
			for chunks+1 < len(ends) && bytes.HasPrefix(content, whole[:ends[chunks+1]]) {
				chunks++
			}
			if st := s.Stats(); st.Runs != 10*chunks {
				t.Fatalf("%d of %d bytes: %+v, want %d runs", size, len(whole), st, 10*chunks)
			}
			check.Must(t, s.Append(plainRun("new", begin.Add(time.Hour))))
			check.Must(t, s.Close())

			s, err = Open(Config{Dir: torn, Now: func() time.Time { return begin }})
			check.Must(t, err)
			if got := all(t, s, Filter{Minion: "new"}, 10); len(got) != 1 || s.Stats().Runs != 10*chunks+1 {
				t.Fatalf("%d of %d bytes: %d new runs, %+v", size, len(whole), len(got), s.Stats())
			}
			check.Must(t, s.Close())
		}
	}
}

// Any damage to a file: the history finds no run that was not appended, counts and logs what is
// lost, and still has most runs.
func TestDamageIsSkippedAndCounted(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	var m model
	for i := range 300 {
		run := randomRun(r, i)
		check.Must(t, s.Append(run))
		m.append(run)
		if i%10 == 0 {
			check.Must(t, s.Sync())
		}
	}
	check.Must(t, s.Close())
	want := map[string]bool{}
	for _, name := range names(m) {
		want[name] = true
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	check.Must(t, err)

	for range 25 {
		path := paths[r.IntN(len(paths))]
		whole, err := os.ReadFile(path)
		check.Must(t, err)
		bad := slices.Clone(whole)
		at := r.IntN(len(bad))
		for i := range 1 + r.IntN(64) {
			if at+i < len(bad) {
				bad[at+i] ^= byte(1 + r.IntN(255))
			}
		}
		check.Must(t, os.WriteFile(path, bad, 0o600))

		var log logged.Buffer
		s := open(t, Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
		var found []Run
		found = append(found, all(t, s, Filter{}, 1000)...)
		for _, f := range []Filter{{Minion: "web3", Returns: true}, {State: "state 2", Returns: true}, {Returns: true}} {
			got := all(t, s, f, 1000)
			for i, name := range names(got) {
				if !want[name] && got[i].Return != nil {
					t.Fatalf("byte %d of %s: found %s", at, path, name)
				}
			}
		}
		st := s.Stats()
		if len(found) < 100 || len(found) < len(m) && st.Damaged == 0 && st.TornBytes == 0 {
			t.Fatalf("byte %d of %s: %d runs of %d, %+v", at, path, len(found), len(m), st)
		}
		if len(found) < len(m) && !strings.Contains(log.String(), "history: ") {
			t.Fatalf("byte %d of %s: nothing was logged", at, path)
		}
		check.Must(t, s.Close())
		check.Must(t, os.WriteFile(path, whole, 0o600))
	}
}

// A clock that jumps back neither removes the history nor hides new runs.
func TestClockJumpsBack(t *testing.T) {
	now := begin
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, Now: func() time.Time { return now }})
	for i := range 300 {
		if i == 150 {
			now = begin.AddDate(-20, 0, 0)
		}
		run := plainRun(fmt.Sprint("m", i), now.Add(time.Duration(i)*time.Second))
		check.Must(t, s.Append(run))
	}
	check.Must(t, s.Close())
	now = begin
	s = open(t, Config{Dir: dir, Now: func() time.Time { return now }})
	got := all(t, s, Filter{}, 17)
	if !slices.IsSortedFunc(got, func(a, b Run) int { return b.Time.Compare(a.Time) }) {
		t.Error("the runs are not in order")
	}
	if len(got) < 240 { // two segments may go: one at the start, one at an end of a segment
		t.Errorf("%d runs", len(got))
	}
	if len(all(t, s, Filter{From: begin}, 100)) != 150 {
		t.Error("a run of the right time is missing")
	}
}

// TestCursorAfterARun: the page after a run begins with the next one, also among runs of one moment.
func TestCursorAfterARun(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	for i := range 20 {
		check.Must(t, s.Append(plainRun(fmt.Sprintf("web%d", i), begin.Add(time.Duration(i/5)*time.Second))))
	}

	all, err := s.Query(t.Context(), Filter{}, 100, "")
	check.Must(t, err)
	for i := range all.Runs {
		rest, err := s.Query(t.Context(), Filter{}, 100, After(&all.Runs[i]))
		check.Must(t, err)
		if len(rest.Runs) != len(all.Runs)-i-1 || len(rest.Runs) > 0 && rest.Runs[0].Minion != all.Runs[i+1].Minion {
			t.Errorf("after run %d of %d there are %d", i, len(all.Runs), len(rest.Runs))
		}
	}
}

// TestAmendedRun: of a run that was amended readers get what was stored last, once, wherever both are.
func TestAmendedRun(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	cfg := Config{Dir: t.TempDir(), Now: time.Now, Log: log, segmentRuns: 3, chunkRows: 1}
	store, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	write := func(put func(Run) error, number int, user string) {
		t.Helper()
		err := put(Run{
			Minion:   fmt.Sprint("m", number%4),
			JID:      fmt.Sprint("2026010100000000000", number/4),
			Function: "test.ping",
			User:     user,
			Time:     at.Add(time.Duration(number/2) * time.Second),
			Return:   []byte("return of " + user),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for number := range 16 {
		write(store.Append, number, "first")
	}
	for _, user := range []string{"second", "third"} {
		for number := range 16 {
			if number%2 == 0 {
				write(store.Amend, number, user)
			}
		}
	}

	for _, state := range []string{"while it is written", "after the next start"} {
		for _, limit := range []int{1, 5, 100} {
			users := map[string]int{}
			for from := Cursor(""); ; {
				page, err := store.Query(t.Context(), Filter{Returns: true}, limit, from)
				if err != nil {
					t.Fatal(err)
				}
				for _, run := range page.Runs {
					users[run.User]++
					if string(run.Return) != "return of "+run.User {
						t.Errorf("%s: %s has the %s", state, run.User, run.Return)
					}
				}
				if from = page.Next; from == "" {
					break
				}
			}
			if users["first"] != 8 || users["third"] != 8 || len(users) != 2 {
				t.Errorf("%s, %d a page: %v", state, limit, users)
			}
		}
		page, err := store.Query(t.Context(), Filter{User: "third", JID: "20260101000000000001"}, 0, "")
		if err != nil || len(page.Runs) != 2 {
			t.Errorf("%s: %d runs of a job by the last user, %v", state, len(page.Runs), err)
		}

		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if store, err = Open(cfg); err != nil {
			t.Fatal(err)
		}
	}
	_ = store.Close()
}
