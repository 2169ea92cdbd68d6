package jobs

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// fakeArchive is an Archive that fails when it is told to.
type fakeArchive struct {
	mu           sync.Mutex
	err, syncErr error
	taken        map[string]Archived
	durable      map[string]Archived // taken as of the last Sync
	loads        map[string]string   // function by minion
	times        int                 // calls of Add
	wholeSince   time.Time
	leavesOut    string // id of a minion whose returns it leaves out
}

func newFakeArchive() *fakeArchive {
	return &fakeArchive{taken: map[string]Archived{}, loads: map[string]string{}, wholeSince: time.Unix(1, 0)}
}

func (f *fakeArchive) Add(a Archived) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.times++
	if f.err != nil {
		return f.err
	}
	if a.Minion == f.leavesOut {
		return fmt.Errorf("%w: it is of %s", ErrLeftOut, a.Minion)
	}
	f.taken[a.JID+" "+a.Minion] = a
	f.loads[a.Minion] = a.Load().Str("fun")
	return nil
}

func (f *fakeArchive) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.syncErr == nil {
		f.durable = maps.Clone(f.taken)
	}
	return f.syncErr
}

func (f *fakeArchive) WholeSince() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wholeSince
}

// dropBefore has the archive say that it has dropped what is older.
func (f *fakeArchive) dropBefore(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wholeSince = at
}

func (f *fakeArchive) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeArchive) failSync(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncErr = err
}

// loseUnsynced forgets what was not synced, as after a power cut.
func (f *fakeArchive) loseUnsynced() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = maps.Clone(f.durable)
	if f.taken == nil {
		f.taken = map[string]Archived{}
	}
}

func (f *fakeArchive) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.taken)
}

func (f *fakeArchive) functionOf(minion string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loads[minion]
}

func (f *fakeArchive) timeOf(minion string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken[jid1+" "+minion].Time
}

// fakeClock is a clock that a test sets.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// The journal removes a segment only when the archive has its returns durably, also those of a
// process that ended between two steps.
func TestArchiveGetsWhatTheJournalLoses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	archive := newFakeArchive()
	archive.failSync(syscall.EIO)
	c := open(t, Config{Dir: dir, SegmentBytes: 600, Archive: archive})
	check.Must(t, c.SaveLoad(await.Context(t), jid1, value.NewMap("jid", jid1, "fun", "test.ping"), []string{"m1"}))
	for i := range 20 {
		save(t, c, ret(jid1, fmt.Sprint("m", i), true))
	}
	flushed(t, c)
	crash(t, c)
	if archive.count() != 20 {
		t.Fatalf("the archive has %d returns", archive.count())
	}
	if left, _ := filepath.Glob(dir + ".journal/*.log"); len(left) == 0 {
		t.Fatal("nothing is left to replay")
	}

	archive.loseUnsynced()
	archive.failSync(nil)
	c = open(t, Config{Dir: dir, Archive: archive})
	if left, _ := filepath.Glob(dir + ".journal/*.log"); len(left) != 0 {
		t.Errorf("left in the journal: %v", left)
	}
	archive.loseUnsynced()
	if archive.count() != 20 {
		t.Errorf("the journal is gone, and the archive has %d returns", archive.count())
	}
	for minion, function := range archive.loads {
		if function != "test.ping" {
			t.Errorf("the load of %s has the function %q", minion, function)
		}
	}
	check.Must(t, c.Close(await.Context(t)))
}

// Nothing is lost while an archive cannot be written for a short time. If it fails for longer, the
// master goes on, and counts the returns that the archive has not taken.
func TestArchiveThatFails(t *testing.T) {
	for _, tt := range []struct {
		name     string
		err      error
		lasts    time.Duration
		leftOut  uint64
		archived int
	}{
		{"for a moment", syscall.ENOSPC, archivePatience / 2, 0, 4},
		{"for long", syscall.ENOSPC, 2 * archivePatience, 3, 1},
		{"for good", errors.New("closed"), 0, 3, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := &fakeClock{now: time.Now()}
			archive := newFakeArchive()
			archive.fail(tt.err)
			c := open(t, Config{Archive: archive, Now: clock.Now})
			for i := range 3 {
				save(t, c, ret(jid1, fmt.Sprint("m", i), true))
			}
			await.That(t, "the archive was asked", func() bool {
				archive.mu.Lock()
				defer archive.mu.Unlock()
				return archive.times > 0
			})
			clock.pass(tt.lasts)
			if tt.leftOut == 0 {
				archive.fail(nil)
			}
			flushed(t, c)
			archive.fail(nil)
			save(t, c, ret(jid1, "m9", true))
			flushed(t, c)
			if got := c.Stats().Unarchived; got != tt.leftOut || archive.count() != tt.archived {
				t.Errorf("%d returns left out, %d archived", got, archive.count())
			}
			if got, err := c.Returns(await.Context(t), jid1); err != nil || got.Len() != 4 {
				t.Errorf("the cache has %v, %v", got, err)
			}
		})
	}
}

// The journal keeps what the archive cannot sync, as long as the archive may recover.
func TestArchiveThatCannotSync(t *testing.T) {
	clock := &fakeClock{now: time.Now()}
	archive := newFakeArchive()
	archive.failSync(syscall.EIO)
	c := open(t, Config{Archive: archive, Now: clock.Now, SegmentBytes: 600})
	n := 0
	fill := func() {
		for range 10 {
			save(t, c, ret(jid1, fmt.Sprint("m", n), make([]byte, 600)))
			n++
		}
		flushed(t, c)
	}

	fill()
	if got := c.Stats().Segments; got < 10 {
		t.Errorf("%d segments while the archive cannot sync", got)
	}

	archive.failSync(nil)
	fill()
	await.That(t, "segments are removed", func() bool { return c.Stats().Segments <= 2 })

	archive.failSync(syscall.EIO)
	fill()
	clock.pass(2 * archivePatience)
	fill()
	await.That(t, "segments are removed", func() bool { return c.Stats().Segments <= 2 })
}

// All masters archive a return with the time at which the first one took it: the peer that got a
// copy, and the one that was away and found it in the folder.
func TestArchivesOfAllMastersHaveTheSameTimes(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	archives := []*fakeArchive{newFakeArchive(), newFakeArchive(), newFakeArchive()}
	a := memberWith(t, "10.0.0.1", shared, t.TempDir(), archives[0])
	b := memberWith(t, "10.0.0.2", shared, t.TempDir(), archives[1])
	a.peers.to = []*Cluster{b.Cluster}
	b.wait(7 * time.Minute) // the clocks of the masters differ by this
	check.Must(t, a.save("m1", "one"))
	a.end(t) // hands the return over

	c := memberWith(t, "10.0.0.3", shared, t.TempDir(), archives[2])
	c.wait(time.Hour)
	check.Must(t, c.Import(t.Context()))
	want := archives[0].timeOf("m1")
	for i, archive := range archives {
		await.That(t, fmt.Sprint("the return in archive ", i), func() bool { return archive.count() == 1 })
		if got := archive.timeOf("m1"); !got.Equal(want) || want.IsZero() {
			t.Errorf("archive %d has %v, want %v", i, got, want)
		}
	}
}

// refillArchive is an archive that has lost nothing.
type refillArchive struct {
	*fakeArchive
	missing atomic.Int64
}

func (a *refillArchive) Holds(Archived) (Holding, error) { return Held, nil }
func (a *refillArchive) Refill(Archived) error           { return nil }
func (a *refillArchive) AddMissing(sources int)          { a.missing.Add(int64(sources)) }

// jobArchive is an archive that takes loads as well.
type jobArchive struct {
	*fakeArchive
	functions map[string]string // of the loads by job id
}

func (a *jobArchive) AddJob(j ArchivedJob) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.functions[j.JID] = j.Load.Str("fun")
	return nil
}

// An archive learns which master took a return, so that only that one need write it elsewhere. After a
// crash nobody knows any more.
func TestArchiveLearnsWhoTookAReturn(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	archives := []*jobArchive{
		{newFakeArchive(), map[string]string{}},
		{newFakeArchive(), map[string]string{}},
	}
	a := memberWith(t, "10.0.0.1", shared, t.TempDir(), archives[0])
	b := memberWith(t, "10.0.0.2", shared, t.TempDir(), archives[1])
	a.peers.to = []*Cluster{b.Cluster}
	check.Must(t, a.SaveLoad(await.Context(t), jid1, value.NewMap("jid", jid1, "fun", "test.ping"), nil))
	check.Must(t, a.save("m1", "one"))

	for i, archive := range archives {
		await.That(t, fmt.Sprint("the return in archive ", i), func() bool { return archive.count() == 1 })
		archive.mu.Lock()
		for key, got := range archive.taken {
			if got.Own != (i == 0) {
				t.Errorf("archive %d: %s is its own: %v", i, key, got.Own)
			}
		}
		archive.mu.Unlock()
	}
	await.That(t, "the load", func() bool {
		archives[0].mu.Lock()
		defer archives[0].mu.Unlock()
		return archives[0].functions[jid1] == "test.ping"
	})
}

func TestReplayedReturnIsNobodysOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	archive := newFakeArchive()
	archive.failSync(syscall.EIO)
	c := open(t, Config{Dir: dir, Archive: archive})
	save(t, c, ret(jid1, "m1", true))
	flushed(t, c)
	crash(t, c)
	archive.loseUnsynced()
	c = open(t, Config{Dir: dir, Archive: archive})
	for key, got := range archive.taken {
		if got.Own {
			t.Errorf("%s is its own after a restart", key)
		}
	}
	if archive.count() != 1 {
		t.Errorf("%d returns", archive.count())
	}
	check.Must(t, c.Close(await.Context(t)))
}
