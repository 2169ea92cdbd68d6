package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/control"
	"saltern/master/internal/schedule/plan"
	"saltern/master/value"
)

// masters is who owns the schedule of a cluster, as each master sees it.
type masters struct {
	mu    sync.Mutex
	terms map[int]uint64 // of those that take themselves for the owner
}

func (m *masters) own(node int) func() (uint64, bool) {
	return func() (uint64, bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		term, ok := m.terms[node]
		return term, ok
	}
}

func (m *masters) set(node int, term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if term == 0 {
		delete(m.terms, node)
		return
	}
	m.terms[node] = term
}

// TestScheduleRunsOnceInCluster has three masters share a schedule while their owner is
// killed, started again, or goes on in the belief that it still owns the schedule, at
// generated moments: each run is begun exactly once, by whoever is there.
func TestScheduleRunsOnceInCluster(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "schedule")
			synctest.Test(t, func(t *testing.T) { changeOwners(t, seed, path) })
		})
	}
}

// TestScheduleRunsOnceOverKills has three masters share generated entries while their owner is
// killed at generated moments: each run that one master, which is never killed, would begin is
// begun exactly once. SALTERN_SCHEDULES is the number of entries (make sim: 2,000), of which a cluster has fifty.
func TestScheduleRunsOnceOverKills(t *testing.T) {
	const atOnce = 50
	entries := atOnce
	if n, err := strconv.Atoi(os.Getenv("SALTERN_SCHEDULES")); err == nil {
		entries = n
	}
	for seed := range uint64(entries / atOnce) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { compareOverKills(t, seed, atOnce) })
	}
}

// compareOverKills compares the runs of generated entries.
func compareOverKills(t *testing.T, seed uint64, entries int) {
	const kills = 50
	path := filepath.Join(t.TempDir(), "schedule")
	r := rand.New(rand.NewPCG(seed, 43))
	option := generateEntries(r, entries)
	var got, want map[string][]time.Duration
	var lasted time.Duration
	var down []span
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		down = killOwners(t, b, r, option, path, kills)
		lasted = time.Since(b.began)
		got = b.calls
	})

	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		cfg := b.config(option)
		cfg.Now = func() time.Time { return time.Now().UTC() }
		b.runFor(New(cfg), lasted)
		want = b.calls
	})

	runs, late := 0, 0
	for name := range option.All() {
		fun := "a." + name.(string)
		// The ticks of a master that was started later come later, so the end may cut a last run off.
		n := len(want[fun])
		if n == len(got[fun])+1 && want[fun][n-1] > lasted-2*plan.Tick {
			want[fun] = want[fun][:n-1]
		}
		if len(got[fun]) != len(want[fun]) {
			t.Errorf("%s ran %d times, not %d: %v, not %v", fun, len(got[fun]), len(want[fun]), got[fun], want[fun])
			continue
		}

		for i, due := range want[fun] {
			runs++
			began := got[fun][i]
			if began > due+plan.Tick {
				late++
			}
			if owned := ownedAfter(down, due); began < due || began > owned+2*plan.Tick {
				t.Errorf("%s was due after %v and ran after %v", fun, due, began)
			}
		}
	}
	t.Logf("%d entries, %d kills: %d runs begun once, %d of them late", entries, kills, runs, late)
	if runs < entries {
		t.Errorf("%d runs of %d entries show nothing", runs, entries)
	}
}

// generateEntries returns an option schedule. No entry is due twice while no master owns the
// schedule.
func generateEntries(r *rand.Rand, entries int) *value.Map {
	option := value.NewMap()
	for n := range entries {
		name := fmt.Sprint("e", n)
		second := r.IntN(60)
		at := func(minute int) string { return fmt.Sprintf("00:%02d:%02d", minute+r.IntN(10), second) }
		entry := []any{}
		switch r.IntN(5) {
		case 0:
			entry = append(entry, "cron", fmt.Sprintf("*/%d * * * *", 1+r.IntN(9)))
		case 1:
			entry = append(entry, "cron", fmt.Sprintf("%d,%d * * * *", r.IntN(60), r.IntN(60)), "splay", int64(r.IntN(30)))
		case 2:
			entry = append(entry, "seconds", int64(20+r.IntN(600)), "run_on_start", r.IntN(2) == 0)
		case 3:
			entry = append(entry, "minutes", int64(1+r.IntN(20)))
		default:
			entry = append(entry, "when", []any{at(0), at(10), at(20)})
		}
		option.Set(name, entryOf("a."+name, entry...))
	}
	return option
}

// TestRunsWaitForPython: a new owner records no run of Python before Python is there, so that an owner
// that is killed meanwhile loses none. None waits for a Python that hangs.
func TestRunsWaitForPython(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedule")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		own := func(term uint64, start, lasts time.Duration) {
			b.start = start
			cfg := b.config(value.NewMap("p", entryOf("python.p", "cron", "* * * * *")))
			cfg.Now = func() time.Time { return time.Now().UTC() }
			cfg.Own = func() (uint64, bool) { return term, true }
			cfg.Records = OpenRecords(path)
			b.runFor(New(cfg), lasts)
		}

		own(1, 0, 59*time.Second+time.Millisecond)    // 0:59
		own(2, 9*time.Second, 5*time.Second)          // killed at 1:04 with a run that is due since 1:00
		own(3, 3500*time.Millisecond, 51*time.Second) // 1:55
		own(4, time.Hour, 40*time.Second)             // 2:35

		var got []time.Duration
		for _, at := range b.calls["python.p"] {
			got = append(got, at.Truncate(2*time.Second))
		}
		if want := seconds(64+4, 115+15); !slices.Equal(got, want) {
			t.Errorf("ran after %v, not %v", got, want)
		}
	})
}

// TestRunsThatWaitAreLeftToTheNextOwner: of eight runs that are due at once, a master makes one at a
// time. Its owner ends in good order fifty times, at random moments: each run begins exactly once.
func TestRunsThatWaitAreLeftToTheNextOwner(t *testing.T) {
	const ends, entries, every = 50, 8, 2 * time.Minute
	path := filepath.Join(t.TempDir(), "schedule")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r := rand.New(rand.NewPCG(43, 6))
		option := value.NewMap()
		var times []any
		for minute := 0; minute < 90; minute += 2 {
			times = append(times, fmt.Sprintf("%02d:%02d:00", minute/60, minute%60))
		}
		for n := range entries {
			fun := fmt.Sprint("a.e", n)
			b.lasts[fun] = time.Duration(r.IntN(9_000)) * time.Millisecond
			entry := entryOf(fun, "when", times)
			if n%2 == 0 {
				entry = entryOf(fun, "cron", "*/2 * * * *")
			}
			if n%4 > 1 { // a far time that the entry names does not hold up the run that was left
				entry.Set("run_explicit", []any{value.NewMap("time", "2001-01-01T00:00:00", "time_fmt", "%Y-%m-%dT%H:%M:%S")})
			}
			option.Set(fun, entry)
		}

		for end := range ends {
			cfg := b.config(option)
			cfg.Now = func() time.Time { return time.Now().UTC() }
			cfg.Own = func() (uint64, bool) { return uint64(end + 1), true }
			cfg.Records = OpenRecords(path)
			cfg.Workers = 1
			b.runFor(New(cfg), time.Duration(r.IntN(60_000))*time.Millisecond+time.Millisecond)
		}
		cfg := b.config(option)
		cfg.Now = func() time.Time { return time.Now().UTC() }
		cfg.Records = OpenRecords(path)
		cfg.Own = func() (uint64, bool) { return ends + 1, true }
		lasted := time.Since(b.began).Truncate(every) + every/2
		b.runFor(New(cfg), lasted+every-time.Since(b.began))

		for n := range entries {
			fun := fmt.Sprint("a.e", n)
			runs := map[time.Duration]int{}
			for _, at := range b.calls[fun] {
				runs[at/every]++
			}
			for due := every; due <= lasted; due += every {
				if runs[due/every] != 1 {
					t.Errorf("%s, due after %v, began %d times: %v", fun, due, runs[due/every], b.calls[fun])
				}
			}
		}
	})
}

// TestEndWaitsForNoFolder: a shared folder that hangs does not hold up the end of a master whose runs wait.
func TestEndWaitsForNoFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedule")
	b := newBench(t)
	cfg := b.config(value.NewMap("e", entryOf("a.b", "minutes", int64(1))))
	cfg.Records = OpenRecords(path)
	s := New(cfg)
	if n := len(s.takeDue()); n != 1 {
		t.Fatalf("%d runs at the start", n)
	}

	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	cfg.Records.file.Version = func([]byte) (uint64, error) {
		<-hangs
		return 0, errors.New("it was away")
	}

	s.entries[0].waiting.Add(1)
	if err := s.giveBack(); !errors.Is(err, errSilent) {
		t.Error(err)
	}
}

// span is a time in which no master owned the schedule.
type span struct{ from, to time.Duration }

// killOwners has three masters run a schedule, and kills the owner again and again.
func killOwners(t *testing.T, b *bench, r *rand.Rand, option *value.Map, path string, kills int) (down []span) {
	m := &masters{terms: map[int]uint64{}}
	start := func(node int) (kill func()) {
		cfg := b.config(option)
		cfg.Now = func() time.Time { return time.Now().UTC() }
		cfg.Own = m.own(node)
		cfg.Records = OpenRecords(path)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			New(cfg).Run(ctx)
			close(ended)
		}()
		return func() {
			cancel()
			<-ended
		}
	}

	var stops [3]func()
	owner := 0
	m.set(owner, 1)
	for node := range stops {
		stops[node] = start(node)
	}

	for kill := range kills {
		time.Sleep(time.Duration(1_000+r.IntN(60_000))*time.Millisecond + time.Millisecond)
		from := time.Since(b.began)
		stops[owner]()
		m.set(owner, 0)
		time.Sleep(time.Duration(r.IntN(12_000)) * time.Millisecond)
		stops[owner] = start(owner)
		owner = (owner + 1 + r.IntN(2)) % 3
		m.set(owner, uint64(kill+2))
		down = append(down, span{from: from, to: time.Since(b.began)})
	}

	time.Sleep(time.Minute)
	for _, stop := range stops {
		stop()
	}
	return down
}

// ownedAfter returns when a master that lived on owned the schedule after a run was due. An owner may
// be killed before its first tick.
func ownedAfter(down []span, due time.Duration) time.Duration {
	owned := due
	for _, d := range down {
		if owned >= d.from-2*plan.Tick && owned <= d.to+plan.Tick {
			owned = d.to
		}
	}
	return owned
}

// TestNoteOfUnknownEnd: a write to the volume that ended with an error, and was taken all the
// same, loses no run and doubles none.
func TestNoteOfUnknownEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedule")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		cfg := b.config(value.NewMap("e", entryOf("a.b", "minutes", int64(1))))
		cfg.Now = func() time.Time { return time.Now().UTC() }
		cfg.Records = OpenRecords(path)
		s := New(cfg)
		if n := len(s.takeDue()); n != 1 {
			t.Fatalf("%d runs at the start", n)
		}

		// What the look of the next minute writes.
		time.Sleep(time.Minute)
		states, dues := s.walkEntries(time.Now().UTC())
		err := s.cfg.Records.replaceNext(record{
			Version: s.version + 1,
			Term:    s.term,
			Looked:  time.Now().UTC(),
			Entries: s.entryRecords(states, time.Now().UTC()),
		})
		if err != nil || len(dues) != 1 {
			t.Fatalf("%d runs, %v", len(dues), err)
		}

		runs := []int{}
		for range 61 {
			time.Sleep(time.Second)
			runs = append(runs, len(s.takeDue()))
		}

		if runs[0] != 1 || runs[59] != 1 || total(runs) != 2 {
			t.Errorf("runs of each second: %v", runs)
		}
	})
}

func total(numbers []int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

// TestRecordOfAnotherClock: a record of a clock that was years ahead keeps nothing from running.
func TestRecordOfAnotherClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedule")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, ahead := range []time.Duration{20 * 365 * 24 * time.Hour, 0} {
			clear(b.calls)
			cfg := b.config(value.NewMap(
				"interval", entryOf("a.interval", "minutes", int64(1)),
				"cron", entryOf("a.cron", "cron", "*/2 * * * *"),
				"daily", entryOf("a.daily", "when", []any{"00:03", "00:06", "00:09", "00:12"}),
			))

			cfg.Now = func() time.Time { return time.Now().UTC().Add(ahead) }
			cfg.Records = OpenRecords(path)
			b.runFor(New(cfg), 5*time.Minute)
			for fun, least := range map[string]int{"a.interval": 4, "a.cron": 2, "a.daily": 1} {
				if n := len(b.calls[fun]); n < least {
					t.Errorf("clock ahead by %v: %s ran %d times", ahead, fun, n)
				}
			}
		}
	})
}

// TestRunThatWaitsOutlivesItsMaster: what a delay or a range puts off for longer than a master
// may be away runs on the next one, once; and what had run by a clock that is a little ahead
// does not run again.
func TestRunThatWaitsOutlivesItsMaster(t *testing.T) {
	for _, c := range []struct {
		name   string
		entry  *value.Map
		ahead  time.Duration // of the first master's clock
		change time.Duration // when the second takes over
		want   []time.Duration
	}{
		{
			name: "splay",
			entry: entryOf("a.b", "cron", "0,30 * * * *", "splay",
				value.NewMap("start", int64(1200), "end", int64(1200))),
			change: 75 * time.Minute,
			want:   []time.Duration{50 * time.Minute, 80 * time.Minute},
		},
		{
			name: "range",
			entry: entryOf("a.b", "cron", "10 0 * * *", "skip_during_range",
				value.NewMap("start", "00:05", "end", "00:40"), "run_after_skip_range", true),
			change: 30 * time.Minute,
			want:   []time.Duration{40*time.Minute + time.Second},
		},
		{
			name:   "clock ahead",
			entry:  entryOf("a.b", "cron", "1 0 * * *"),
			ahead:  5 * time.Second,
			change: 57 * time.Second,
			want:   []time.Duration{55 * time.Second},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "schedule")
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				for i, lasts := range []time.Duration{c.change, 90*time.Minute - c.change} {
					cfg := b.config(value.NewMap("e", c.entry))
					cfg.Now = func() time.Time { return time.Now().UTC().Add(c.ahead) }
					cfg.Own = func() (uint64, bool) { return uint64(i + 1), true }
					cfg.Records = OpenRecords(path)
					b.runFor(New(cfg), lasts)
					c.ahead = 0
				}

				if !slices.Equal(b.calls["a.b"], c.want) {
					t.Errorf("ran after %v, not %v", b.calls["a.b"], c.want)
				}
			})
		})
	}
}

// TestRunThatLapsesIsNamed: a run that cannot be noted waits for ten minutes, and is then left
// out, in the log; a shorter one runs late.
func TestRunThatLapsesIsNamed(t *testing.T) {
	for _, c := range []struct {
		away time.Duration
		runs int
		log  int
	}{
		{8 * time.Minute, 1, 0},
		{15 * time.Minute, 0, 1},
	} {
		t.Run(c.away.String(), func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "volume")
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}

			away := func() error { // its files answer with an error
				return errors.Join(os.Rename(folder, folder+".away"), os.WriteFile(folder, nil, 0o600))
			}
			back := func() error { return errors.Join(os.Remove(folder), os.Rename(folder+".away", folder)) }
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				cfg := b.config(value.NewMap("e", entryOf("a.b", "cron", "1 0 * * *")))
				cfg.Now = func() time.Time { return time.Now().UTC() }
				cfg.Records = OpenRecords(filepath.Join(folder, "schedule"))
				time.AfterFunc(30*time.Second, func() {
					if err := away(); err != nil {
						t.Error(err)
					}
				})

				time.AfterFunc(30*time.Second+c.away, func() {
					if err := back(); err != nil {
						t.Error(err)
					}
				})

				b.runFor(New(cfg), 20*time.Minute)
				if n := len(b.calls["a.b"]); n != c.runs {
					t.Errorf("ran %d times", n)
				}

				if text := b.log.String(); strings.Count(text, "is left out") != c.log ||
					strings.Contains(text, "is left out") && !strings.Contains(text, `due="2000-01-01 00:01:00"`) {
					t.Errorf("log:\n%s", text)
				}
			})
		})
	}
}

// TestFaultIsLoggedOnce: what keeps runs from being noted is one line in the log, though the
// file that cannot be made has another name each second.
func TestFaultIsLoggedOnce(t *testing.T) {
	b := newBench(t)
	s := New(b.config(value.NewMap()))
	for i := range 5 {
		s.reportFault(fmt.Errorf("note runs: %w",
			&os.PathError{Op: "open", Path: fmt.Sprint("/volume/.schedule.after-tmp-", i), Err: syscall.EROFS}))
	}
	s.reportFault(nil)
	s.reportFault(&os.PathError{Op: "open", Path: "/volume/x", Err: syscall.EROFS})
	s.reportFault(&os.PathError{Op: "open", Path: "/volume/x", Err: syscall.ENOSPC})
	if n := strings.Count(b.log.String(), "level=ERROR"); n != 3 {
		t.Errorf("%d lines:\n%s", n, &b.log)
	}
}

func changeOwners(t *testing.T, seed uint64, path string) {
	r := rand.New(rand.NewPCG(seed, 1))
	b := newBench(t)
	m := &masters{terms: map[int]uint64{}}
	option := value.NewMap(
		"cron", entryOf("a.cron", "cron", "* * * * *"),
		"spread", entryOf("a.spread", "cron", "* * * * *", "splay", int64(20)),
		"interval", entryOf("a.interval", "seconds", int64(20)),
		"daily", entryOf("a.daily", "when", "00:10:30"),
		"start", entryOf("a.start", "days", int64(1)),
	)

	start := func(node int) (stop func()) {
		cfg := b.config(option)
		cfg.Now = func() time.Time { return time.Now().UTC() }
		cfg.Own = m.own(node)
		cfg.Records = OpenRecords(path)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			New(cfg).Run(ctx)
			close(ended)
		}()

		return func() {
			cancel()
			<-ended
		}
	}

	var stops [3]func()
	for node := range stops {
		stops[node] = start(node)
	}

	owner := 0
	m.set(owner, 1)
	for term := uint64(2); time.Since(b.began) < 20*time.Minute; term++ {
		time.Sleep(time.Duration(10_000+r.IntN(80_000))*time.Millisecond + time.Millisecond)
		last := owner
		owner = (owner + 1 + r.IntN(2)) % 3
		switch r.IntN(3) {
		case 0: // killed, and started again
			stops[last]()
			m.set(last, 0)
			stops[last] = start(last)
			time.Sleep(time.Duration(r.IntN(9_000)) * time.Millisecond)
			m.set(owner, term)
		case 1: // gives the schedule up
			m.set(last, 0)
			time.Sleep(time.Duration(r.IntN(9_000)) * time.Millisecond)
			m.set(owner, term)
		default: // does not see yet that another one owns it
			m.set(owner, term)
			time.Sleep(time.Duration(r.IntN(9_000)) * time.Millisecond)
			m.set(last, 0)
		}
	}

	for _, stop := range stops {
		stop()
	}

	for _, c := range []struct {
		fun    string
		period time.Duration
		late   time.Duration // at most: nobody was there for 9 s, and the splay
		first  int
	}{
		{"a.cron", time.Minute, 11 * time.Second, 1},
		{"a.spread", time.Minute, 31 * time.Second, 1},
		{"a.interval", 20 * time.Second, 11 * time.Second, 0},
	} {
		runs := map[int]int{} // by period
		for _, d := range b.calls[c.fun] {
			runs[int(d/c.period)]++
			if d%c.period > c.late {
				t.Errorf("%s ran after %v", c.fun, d)
			}
		}

		for i := c.first; i < int(20*time.Minute/c.period); i++ {
			if runs[i] != 1 {
				t.Errorf("%s ran %d times in period %d", c.fun, runs[i], i)
			}
		}
	}

	if len(b.calls["a.start"]) != 1 || len(b.calls["a.daily"]) != 1 {
		t.Errorf("at the start %v, daily %v", b.calls["a.start"], b.calls["a.daily"])
	}

	if text := b.log.String(); strings.Contains(text, "ERROR") &&
		!strings.Contains(text, "another version has come first") {
		t.Errorf("log:\n%s", text)
	}
}

// TestBrokenRecordStopsNothing: a record that cannot be understood is set aside and named. What
// its whole parts say counts on, and nothing runs twice.
func TestBrokenRecordStopsNothing(t *testing.T) {
	whole := func(path string) map[string]any {
		content, err := os.ReadFile(path)
		var r map[string]any
		if err = errors.Join(err, json.Unmarshal(content, &r)); err != nil {
			t.Fatal(err)
		}
		return r
	}

	for _, c := range []struct {
		name   string
		damage func(path string) []byte
		aside  bool
		again  int // runs of a.first that begin anew
	}{
		{"no JSON", func(string) []byte { return []byte("\x00\x00\x00") }, true, 0},
		{"empty", func(string) []byte { return nil }, true, 0},
		{"version of another kind", func(string) []byte { return []byte(`{"version":"7","entries":{}}`) }, true, 0},
		{"entries of another kind", func(string) []byte { return []byte(`{"version":7,"entries":[1]}`) }, true, 0},
		{"one entry of another kind", func(path string) []byte {
			r := whole(path)
			r["version"] = r["version"].(float64) + 1 // what a stranger wrote
			r["entries"].(map[string]any)["first"] = []any{"x"}
			content, _ := json.Marshal(r)
			return content
		}, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "schedule")
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				problems := map[control.Fault]error{}
				start := func(term uint64) *Schedule {
					cfg := b.config(value.NewMap(
						"first", entryOf("a.first", "minutes", int64(10)),
						"second", entryOf("a.second", "minutes", int64(10)),
					))

					cfg.Now = func() time.Time { return time.Now().UTC() }
					cfg.Records = OpenRecords(path)
					cfg.Own = func() (uint64, bool) { return term, true }
					cfg.Problem = func(what control.Fault, err error) { problems[what] = err }

					return New(cfg)
				}

				b.runFor(start(1), time.Minute)
				if err := os.WriteFile(path, c.damage(path), 0o600); err != nil {
					t.Fatal(err)
				}

				b.runFor(start(2), time.Minute)
				if first, second := len(b.calls["a.first"]), len(b.calls["a.second"]); first != 1+c.again ||
					second != 1 {
					t.Errorf("%d and %d runs\n%s", first, second, &b.log)
				}

				b.runFor(start(3), 10*time.Minute)
				if n := len(b.calls["a.second"]); n != 2 {
					t.Errorf("%d runs after ten minutes more\n%s", n, &b.log)
				}

				aside, _ := filepath.Glob(path + ".broken-*")
				if got := len(aside) == 1 && problems[control.ScheduleRecordFault] != nil; got != c.aside {
					t.Errorf("set aside: %v, problems: %v", aside, problems)
				}

				if err := problems[control.ScheduleFault]; err != nil {
					t.Errorf("still: %v", err)
				}
			})
		})
	}
}

// TestLostRecordsRepeatNothing: where the last records are broken, all that were written since a run,
// the master that has begun it knows better than the newest whole one.
func TestLostRecordsRepeatNothing(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "schedule")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		cfg := b.config(value.NewMap(
			"rare", entryOf("a.rare", "minutes", int64(5), "run_on_start", false),
			"often", entryOf("a.often", "minutes", int64(1), "run_on_start", false),
		))

		cfg.Now = func() time.Time { return time.Now().UTC() }
		cfg.Records = OpenRecords(path)
		ended := make(chan struct{})
		go func() {
			b.runFor(New(cfg), 11*time.Minute+30*time.Second)
			close(ended)
		}()

		time.Sleep(4*time.Minute + 30*time.Second)
		whole, err := filepath.Glob(filepath.Join(folder, ".schedule.after-*"))
		if err != nil || len(whole) < 3 {
			t.Fatalf("%v, %v", whole, err)
		}

		time.Sleep(3 * time.Minute)
		all, _ := filepath.Glob(filepath.Join(folder, ".schedule.after-*"))
		for _, broken := range append(all, path) {
			if slices.Contains(whole, broken) {
				continue
			}
			if err := os.WriteFile(broken, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}

		<-ended
		if rare, often := len(b.calls["a.rare"]), len(b.calls["a.often"]); rare != 2 || often != 11 {
			t.Errorf("%d and %d runs in eleven minutes\n%s", rare, often, &b.log)
		}
	})
}

// TestNoteOfUnknownEndOfSkipFunction: where skip_function was due, it is what runs after a write
// of unknown end, too.
func TestNoteOfUnknownEndOfSkipFunction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedule")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		cfg := b.config(value.NewMap(
			"skip_function", "a.skip",
			"skip_during_range", value.NewMap("start", "00:00:30", "end", "23:00:00"),
			"e", entryOf("a.b", "minutes", int64(1)),
		))

		cfg.Now = func() time.Time { return time.Now().UTC() }
		cfg.Records = OpenRecords(path)
		s := New(cfg)
		if dues := s.takeDue(); len(dues) != 1 || dues[0].fun != "a.b" {
			t.Fatalf("at the start: %v", dues)
		}

		time.Sleep(time.Minute)
		states, dues := s.walkEntries(time.Now().UTC())
		err := s.cfg.Records.replaceNext(record{
			Version: s.version + 1,
			Term:    s.term,
			Looked:  time.Now().UTC(),
			Entries: s.entryRecords(states, time.Now().UTC()),
		})
		if err != nil || len(dues) != 1 || dues[0].fun != "a.skip" {
			t.Fatalf("after a minute: %v, %v", dues, err)
		}

		time.Sleep(time.Second)
		if dues := s.takeDue(); len(dues) != 1 || dues[0].fun != "a.skip" {
			t.Errorf("after a note of unknown end: %v", dues)
		}
	})
}
