package schedule

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/value"
)

// savedNow is entries that a test changes.
type savedNow struct {
	mu  sync.Mutex
	now SavedEntries
}

func (s *savedNow) Schedules() SavedEntries {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// set replaces the entries. An entry that stays the same keeps its time.
func (s *savedNow) set(entries *value.Map) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := map[string]time.Time{}
	for k, v := range entries.All() {
		name, _ := k.(string)
		since[name] = time.Now()
		if value.Equal(v, s.now.Entries.Value(name)) {
			since[name] = s.now.Since[name]
		}
	}
	s.now = SavedEntries{Version: s.now.Version + 1, Entries: entries, Since: since}
}

// TestSavedEntries: saved entries begin, change and end while the schedule runs, alone and in a
// cluster whose owner changes; the entries of the option do not notice.
func TestSavedEntries(t *testing.T) {
	for _, name := range []string{"alone", "cluster"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "schedule")
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var owner sync.Map
				owner.Store("owner", 0)
				saved := &savedNow{}
				var all sync.WaitGroup
				for i := range 2 {
					if name == "alone" && i > 0 {
						continue
					}
					cfg := b.config(value.NewMap("e", entryOf("a.option", "minutes", int64(1))))
					cfg.Saved = saved
					if name == "cluster" {
						cfg.Records = OpenRecords(path)
						cfg.Own = func() (uint64, bool) {
							now, _ := owner.Load("owner")
							return uint64(now.(int) + 1), now == i
						}
					}
					all.Go(func() { b.runFor(New(cfg), 595*time.Second) })
				}

				time.Sleep(30*time.Second + time.Millisecond)
				saved.set(value.NewMap(
					"x", entryOf("a.saved", "seconds", int64(50)),
					"c", entryOf("a.cron", "cron", "0 * * * *"), // its minute has passed
					"e", entryOf("a.hidden", "seconds", int64(5)),
				))
				time.Sleep(100 * time.Second) // 130
				owner.Store("owner", 1)
				time.Sleep(30 * time.Second) // 160
				saved.set(value.NewMap(
					"x", entryOf("a.saved", "seconds", int64(50)),
					"y", entryOf("a.other", "seconds", int64(40), "run_on_start", false),
				))
				time.Sleep(15 * time.Second)
				owner.Store("owner", 0)      // the other master knows when y is due
				time.Sleep(65 * time.Second) // 240
				saved.set(value.NewMap("y", entryOf("a.other", "seconds", int64(100), "run_on_start", false)))
				time.Sleep(10 * time.Second) // 250
				saved.set(value.NewMap())
				all.Wait()

				for fun, want := range map[string][]time.Duration{
					"a.option": seconds(0, 60, 120, 180, 240, 300, 360, 420, 480, 540),
					"a.saved":  seconds(31, 81, 131, 181, 231),
					"a.other":  seconds(201),
					"a.cron":   nil,
					"a.hidden": nil,
				} {
					got := b.calls[fun]
					near := slices.EqualFunc(got, want, func(a, b time.Duration) bool { return (a - b).Abs() <= 2*time.Second })
					if !near {
						t.Errorf("%s ran at %v, want %v", fun, got, want)
					}
				}
			})
		})
	}
}

// TestSavedEntryIsNotLate: an entry does not run for a time before it was saved, whoever owns the
// schedule then.
func TestSavedEntryIsNotLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedule")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		option := value.NewMap("e", entryOf("a.option", "minutes", int64(1)))
		first := b.config(option)
		first.Records = OpenRecords(path)
		b.runFor(New(first), 65*time.Second)

		// The first master is gone; somebody saves an entry at the second one, which takes over later.
		time.Sleep(150 * time.Second)
		saved := &savedNow{}
		saved.set(value.NewMap("c", entryOf("a.cron", "cron", "2 * * * *"))) // 120 s
		second := b.config(option)
		second.Records = OpenRecords(path)
		second.Saved = saved
		second.Own = func() (uint64, bool) { return 2, true }
		time.Sleep(15 * time.Second)
		b.runFor(New(second), time.Minute)
		if got := b.calls["a.cron"]; len(got) > 0 {
			t.Errorf("it ran at %v", got)
		}
		if n := len(b.calls["a.option"]); n < 3 {
			t.Errorf("the entry of the option ran %d times", n)
		}
	})
}
