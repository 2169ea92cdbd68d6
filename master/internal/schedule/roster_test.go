package schedule

import (
	"fmt"
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

// TestSavedEntryThatTheOwnerDoesNotKnowYet: a master that takes the schedule over before it has read an entry
// keeps what others have recorded of it. The entry does not run again at once, at that master or the next.
func TestSavedEntryThatTheOwnerDoesNotKnowYet(t *testing.T) {
	old := value.NewMap("changed", entryOf("a.old", "minutes", int64(60), "run_on_start", false))
	all := value.NewMap(
		"new", entryOf("a.new", "minutes", int64(10)),
		"changed", entryOf("a.changed", "minutes", int64(10)),
	)
	for name, last := range map[string]uint64{"learns it": 2, "is gone before": 3} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "schedule")
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				start := func(term uint64, saved *savedNow, d time.Duration) {
					cfg := b.config(value.NewMap("e", entryOf("a.option", "minutes", int64(1))))
					cfg.Now = func() time.Time { return time.Now().UTC() }
					cfg.Records = OpenRecords(path)
					cfg.Saved = saved
					cfg.Own = func() (uint64, bool) { return term, true }
					b.runFor(New(cfg), d)
				}

				whole, late := &savedNow{}, &savedNow{}
				whole.set(all)
				late.set(old)
				start(1, whole, 30*time.Second)
				if last == 2 {
					time.AfterFunc(10*time.Second, func() { late.set(all) })
					start(2, late, 11*time.Minute)
				} else {
					start(2, late, 10*time.Second)
					start(3, whole, 11*time.Minute)
				}

				for _, fun := range []string{"a.new", "a.changed"} {
					want := 2
					if last == 3 && fun == "a.changed" {
						want = 3 // the master in between has recorded its own entry
					}
					if got := b.calls[fun]; len(got) != want {
						t.Errorf("%s ran at %v", fun, got)
					}
				}
			})
		})
	}
}

// TestCalendarEntryThatTheOwnerDoesNotKnowYet: an entry with a time of day, or a cron entry, whose time passes
// while the owner does not know it runs at its next time: at the owner that learns it, and at the next one.
func TestCalendarEntryThatTheOwnerDoesNotKnowYet(t *testing.T) {
	for name, next := range map[string]bool{"learns it": false, "is gone before": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "schedule")
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				began := time.Now().UTC()
				due := began.Add(3 * time.Minute)
				all := value.NewMap(
					"when", entryOf("a.when", "when", []any{due.Format(time.TimeOnly), due.Add(time.Hour).Format(time.TimeOnly)}),
					"cron", entryOf("a.cron", "cron", fmt.Sprintf("%d * * * *", due.Minute())),
				)
				start := func(term uint64, saved *savedNow, d time.Duration) {
					cfg := b.config(value.NewMap("e", entryOf("a.option", "minutes", int64(1))))
					cfg.Now = func() time.Time { return time.Now().UTC() }
					cfg.Records = OpenRecords(path)
					cfg.Saved = saved
					cfg.Own = func() (uint64, bool) { return term, true }
					b.runFor(New(cfg), d)
				}

				whole, late := &savedNow{}, &savedNow{}
				whole.set(all)
				late.set(value.NewMap())
				start(1, whole, 90*time.Second)
				if next {
					start(2, late, 3*time.Minute)
					start(3, whole, 90*time.Minute)
				} else {
					time.AfterFunc(3*time.Minute, func() { late.set(all) })
					start(2, late, 90*time.Minute)
				}

				for _, fun := range []string{"a.when", "a.cron"} {
					want := due.Add(time.Hour).Sub(began)
					if got := b.calls[fun]; len(got) != 1 || (got[0]-want).Abs() > 5*time.Second {
						t.Errorf("%s ran at %v, want once, at %v", fun, got, want)
					}
				}
			})
		})
	}
}

// TestRecordOfDeletedEntryEnds: what no master knows any more is not recorded for ever.
func TestRecordOfDeletedEntryEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedule")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for term := range uint64(3) {
			cfg := b.config(value.NewMap("e", entryOf("a.option", "minutes", int64(30))))
			cfg.Now = func() time.Time { return time.Now().UTC() }
			cfg.Records = OpenRecords(path)
			cfg.Own = func() (uint64, bool) { return term + 1, true }
			saved := &savedNow{}
			if term == 0 {
				saved.set(value.NewMap("x", entryOf("a.saved", "minutes", int64(30))))
			}
			cfg.Saved = saved
			b.runFor(New(cfg), 13*time.Hour)

			r, err := cfg.Records.loadNewest()
			if _, recorded := r.Entries["x"]; err != nil || recorded != (term < 2) {
				t.Errorf("owner %d: recorded %v, %v", term+1, recorded, err)
			}
		}
	})
}

// TestCarriedRecordOfAnotherClock: a record of a clock that was years ahead keeps an entry that the owner
// learns later from running as little as one that it knows.
func TestCarriedRecordOfAnotherClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedule")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		entries := value.NewMap("x", entryOf("a.saved", "minutes", int64(1)))
		for _, ahead := range []time.Duration{20 * 365 * 24 * time.Hour, 0} {
			clear(b.calls)
			saved := &savedNow{}
			cfg := b.config(value.NewMap("e", entryOf("a.option", "minutes", int64(1))))
			cfg.Now = func() time.Time { return time.Now().UTC().Add(ahead) }
			cfg.Records = OpenRecords(path)
			cfg.Saved = saved
			time.AfterFunc(10*time.Second, func() { saved.set(entries) })
			b.runFor(New(cfg), 5*time.Minute)
			if n := len(b.calls["a.saved"]); n < 4 {
				t.Errorf("clock ahead by %v: it ran %d times", ahead, n)
			}
		}
	})
}

// TestSavedEntryIsListedAtOnce: the next runs of an entry that was saved or changed a moment ago are known before the
// next check, also at a master that does not own the schedule.
func TestSavedEntryIsListedAtOnce(t *testing.T) {
	for _, owns := range []bool{true, false} {
		t.Run(fmt.Sprintf("owns %t", owns), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "schedule")
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				saved := &savedNow{}
				cfg := b.config(value.NewMap("e", entryOf("a.option", "minutes", int64(1))))
				cfg.Saved = saved
				cfg.Records = OpenRecords(path)
				cfg.Own = func() (uint64, bool) { return 1, owns }
				s := New(cfg)
				var running sync.WaitGroup
				running.Go(func() { b.runFor(s, 40*time.Second) })
				time.Sleep(20*time.Second + time.Millisecond)

				for _, hours := range []int64{2, 5, 0} {
					entries := value.NewMap()
					if hours > 0 {
						entries.Set("x", entryOf("a.saved", "hours", hours, "run_on_start", false))
					}
					saved.set(entries)
					runs, err := s.NextRuns(1)
					next, listed := runs["x"]
					if err != nil || listed != (hours > 0) || listed && len(next) != 1 {
						t.Fatalf("%d hours: %v, %v", hours, runs, err)
					}
					if due := time.Now().Add(time.Duration(hours) * time.Hour); listed && next[0].Sub(due).Abs() > 2*time.Second {
						t.Errorf("%d hours: the next run is %v", hours, next[0])
					}
				}
				running.Wait()
			})
		})
	}
}
