package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/smalldisk"
)

// logText is a log that several goroutines write.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

func (l *logText) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// fullDisk is a cache on a small file system. Its clock goes on by step for each return.
type fullDisk struct {
	*Local
	cfg   Config
	log   logText
	step  time.Duration
	mu    sync.Mutex
	clock time.Time
	taken []string // ids of jobs
}

func openOnSmallDisk(t *testing.T, mib, files, segment int, archive Archive, step time.Duration) *fullDisk {
	t.Helper()
	f := &fullDisk{step: step, clock: time.Now().Add(-100 * time.Hour)}
	f.cfg = Config{
		Dir:          smalldisk.Mount(t, mib, files) + "/jobs",
		SegmentBytes: int64(segment),
		Archive:      archive,
		Now: func() time.Time {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.clock
		},
	}
	f.open(t)
	return f
}

func (f *fullDisk) open(t *testing.T) {
	t.Helper()
	c, err := Open(f.cfg, slog.New(slog.NewTextHandler(&f.log, nil)))
	check.Must(t, err)
	f.Local = c
	t.Cleanup(func() { c.Close(canceled()) })
}

// save saves so many returns of a job each, until one is refused.
func (f *fullDisk) save(t *testing.T, returns, size int) error {
	t.Helper()
	for range returns {
		f.mu.Lock()
		f.clock = f.clock.Add(f.step)
		jid := FromTime(f.clock)
		f.mu.Unlock()

		r := ret(jid, "m1", strings.Repeat("x", size))
		r.Load = value.NewMap("jid", jid, "fun", "f")
		if _, err := f.SaveReturn(await.Context(t), r); err != nil {
			return err
		}
		f.taken = append(f.taken, jid)
		if len(f.taken)%8 == 0 { // the disk is so small that the writer must not lag behind
			until(t, func() bool { return f.Stats().OpenJobs == 0 && f.Stats().Segments <= 1 })
		}
	}
	return nil
}

// found counts the latest jobs whose return and load are found, up to the first one that is not.
func (f *fullDisk) found(t *testing.T) (n int) {
	t.Helper()
	for i := len(f.taken) - 1; i >= 0; i-- {
		returns, err := f.Returns(await.Context(t), f.taken[i])
		check.Must(t, err)
		load, err := f.Load(await.Context(t), f.taken[i])
		check.Must(t, err)
		if returns.Len() == 0 || load == nil {
			break
		}
		n++
	}
	return n
}

// On a full disk the oldest segments make room, never those of the last hour, and no return is refused.
func TestOldestMakeRoomOnAFullDisk(t *testing.T) {
	for name, disk := range map[string]struct{ mib, files, segment, size int }{
		"bytes":  {mib: 1, files: 1000, segment: 32 << 10, size: 4000},
		"inodes": {mib: 64, files: 24, segment: 8 << 10, size: 500},
	} {
		t.Run(name, func(t *testing.T) {
			f := openOnSmallDisk(t, disk.mib, disk.files, disk.segment, newFakeArchive(), 2*time.Minute)
			check.Must(t, f.save(t, 600, disk.size))
			if n := f.log.count("the disk is full"); n == 0 || f.log.count("level=ERROR") > 0 || f.Stats().RemovedEarly != uint64(n) {
				t.Errorf("%d segments removed, %d by the log", f.Stats().RemovedEarly, n)
			}
			n := f.found(t)
			if n < 40 || n == 600 {
				t.Errorf("the latest %d jobs are found", n)
			}

			flushed(t, f.Local)
			check.Must(t, f.Close(await.Context(t)))
			f.open(t)
			if again := f.found(t); again != n {
				t.Errorf("%d of them after a restart", again)
			}
			check.Must(t, f.save(t, 200, disk.size))
			if n := f.found(t); n < 40 {
				t.Errorf("then the latest %d jobs are found", n)
			}
		})
	}
}

// Without room nothing is removed that is new or that no archive has; returns are refused, which is said once.
func TestNothingElseMakesRoomOnAFullDisk(t *testing.T) {
	failing := newFakeArchive()
	failing.fail(errors.New("it takes nothing"))
	full := newFakeArchive() // it has made room, too
	full.dropBefore(time.Now())
	empty := newFakeArchive()
	empty.dropBefore(time.Time{})
	picky := newFakeArchive()
	picky.leavesOut = "m1"
	for name, test := range map[string]struct {
		archive Archive
		step    time.Duration
	}{
		"of the last hour":             {newFakeArchive(), time.Second},
		"there is no archive":          {nil, 2 * time.Minute},
		"the archive takes no return":  {failing, 2 * time.Minute},
		"the archive has dropped them": {full, 2 * time.Minute},
		"the archive has nothing":      {empty, 2 * time.Minute},
		"the archive leaves them out":  {picky, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			f := openOnSmallDisk(t, 1, 1000, 32<<10, test.archive, test.step)
			for range 20 {
				if err := f.save(t, 600, 4000); !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("error %v", err)
				}
			}
			if n := f.found(t); n != len(f.taken) || n < 100 {
				t.Errorf("%d of %d jobs are found", n, len(f.taken))
			}
			if n := f.log.count("are refused until it can"); n != 1 {
				t.Errorf("said %d times", n)
			}

			check.Must(t, f.Close(await.Context(t)))
			f.open(t)
			if n := f.found(t); n != len(f.taken) {
				t.Errorf("%d of %d jobs are found after a restart", n, len(f.taken))
			}
			if err := f.save(t, 100, 4000); err == nil || f.Stats().RemovedEarly > 0 {
				t.Errorf("after a restart: error %v, %d segments removed", err, f.Stats().RemovedEarly)
			}
		})
	}
}

// quietMaster opens a cache with 20 segments of 2 KB, each with one of the returns m0, m1 … of jid1, whose disk is full for fullFor
// writes from the call of fill on. Its clock is two hours later then.
func quietMaster(t *testing.T, archive Archive) (c *Local, fill func(fullFor int)) {
	t.Helper()
	var mu sync.Mutex
	clock := &fakeClock{now: time.Now()}
	left := 0
	cfg := Config{
		Dir:          t.TempDir() + "/jobs",
		SegmentBytes: 2000,
		Archive:      archive,
		Now:          clock.Now,
		fault: func(op string) error {
			mu.Lock()
			defer mu.Unlock()
			if op != "write" || left == 0 {
				return nil
			}
			left--
			return syscall.ENOSPC
		},
	}
	c = open(t, cfg)
	for i := range 20 {
		save(t, c, ret(jid1, fmt.Sprintf("m%d", i), strings.Repeat("x", 2000)))
	}
	flushed(t, c)
	check.Must(t, c.Close(await.Context(t)))

	cfg.SegmentBytes = 1 << 20
	c = open(t, cfg)
	if n := len(keptSegments(c)); n < 18 {
		t.Fatalf("%d segments", n)
	}
	return c, func(fullFor int) {
		mu.Lock()
		defer mu.Unlock()
		clock.pass(2 * youngest)
		left = fullFor
	}
}

// The disk takes what it needs only: on a quiet master one segment may have an hour of jobs.
func TestFullDiskRemovesOneSegmentAtATime(t *testing.T) {
	for _, fullFor := range []int{1, 3} {
		c, fill := quietMaster(t, newFakeArchive())
		fill(fullFor)
		save(t, c, ret(jid1, "new", 1))
		if n := c.Stats().RemovedEarly; n != uint64(fullFor) {
			t.Errorf("%d segments removed, the disk was full for %d writes", n, fullFor)
		}
	}
}

// The segment of a return that the archive leaves out stays, and the next one goes. That is no fault of the archive.
func TestReturnThatTheArchiveLeavesOutStays(t *testing.T) {
	archive := newFakeArchive()
	archive.leavesOut = "m0"
	c, fill := quietMaster(t, archive)
	fill(1)
	save(t, c, ret(jid1, "new", 1))
	returns, err := c.Returns(await.Context(t), jid1)
	check.Must(t, err)
	st := c.Stats()
	if _, ok := returns.GetAny("m0"); !ok || st.RemovedEarly != 1 || st.Unarchived != 0 {
		t.Errorf("the return is there: %v; %+v", ok, st)
	}
}

// A damaged segment has another name in quarantine: its removal would free nothing.
func TestDamagedSegmentMakesNoRoom(t *testing.T) {
	c, fill := quietMaster(t, newFakeArchive())
	c.home.mu.RLock()
	oldest := c.home.segments[0]
	c.home.mu.RUnlock()
	c.home.noteDamaged(oldest)
	fill(1)
	save(t, c, ret(jid1, "new", 1))
	if n := c.Stats().RemovedEarly; n != 1 || !exists(c.home.pathOf(oldest)) {
		t.Errorf("%d segments removed, the damaged one is there: %v", n, exists(c.home.pathOf(oldest)))
	}
}

// When removed segments give no room, for instance because something else takes it, the journal waits before it
// removes more.
func TestRoomThatSomethingElseTakes(t *testing.T) {
	full := false
	var mu sync.Mutex
	clock := &fakeClock{now: time.Now()}
	c := open(t, Config{
		SegmentBytes: 2000,
		Archive:      newFakeArchive(),
		Now:          clock.Now,
		fault: func(op string) error {
			mu.Lock()
			defer mu.Unlock()
			if full && op == "write" {
				return syscall.ENOSPC
			}
			return nil
		},
	})
	for i := range 200 {
		save(t, c, ret(jid1, fmt.Sprintf("m%d", i), i))
	}
	flushed(t, c)
	before := len(keptSegments(c))

	mu.Lock()
	full = true
	clock.pass(2 * youngest)
	mu.Unlock()
	for range 20 {
		if _, err := c.SaveReturn(await.Context(t), ret(jid1, "m", 1)); err == nil {
			t.Fatal("accepted")
		}
	}
	records := c.home.records
	gone := &homeSegment{refs: make([]ref, 10), loads: make([]string, 10)}
	if loads := c.home.remove(gone); loads != 0 || c.home.records != records {
		t.Errorf("a segment was removed twice: %d loads, %d records of %d", loads, c.home.records, records)
	}
	if n := int(c.Stats().RemovedEarly); n == 0 || n > 3 || before-len(keptSegments(c)) != n {
		t.Errorf("%d of %d segments removed, %d are left", n, before, len(keptSegments(c)))
	}
}

// A full disk does not cost the load of a job while its return may be passed to the archive again, after a crash.
func TestLoadStaysWhileAReturnMayBeReplayed(t *testing.T) {
	clock := &fakeClock{now: time.Now()}
	archive := newFakeArchive()
	cfg := Config{
		Dir:          t.TempDir() + "/jobs",
		Archive:      archive,
		Now:          clock.Now,
		SegmentBytes: 100,
	}
	c := open(t, cfg)
	check.Must(t, c.SaveLoad(await.Context(t), jid1, value.NewMap("jid", jid1, "fun", "state.apply"), nil))
	clock.pass(2 * youngest)
	save(t, c, ret(FromTime(clock.Now()), "m1", true)) // ends the segment before
	until(t, func() bool { return len(keptSegments(c)) == 1 })
	clock.pass(2 * youngest)
	archive.failSync(syscall.EIO)
	save(t, c, ret(jid1, "m1", true))
	flushed(t, c)

	if _, removed := c.journal.removeOldest(); removed {
		t.Error("the segment with the load is removed")
	}
	crash(t, c)
	archive.loseUnsynced()
	archive.failSync(nil)
	open(t, cfg)
	if got := archive.functionOf("m1"); archive.count() != 2 || got != "state.apply" {
		t.Errorf("the archive has %d returns, with the load of %q", archive.count(), got)
	}
}
