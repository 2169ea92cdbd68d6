package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestNewDiskGetsAllJobs: a master with an empty disk reads all jobs of its two peers.
// SALTERN_TEST_IMPORT_RETURNS says how many returns.
func TestNewDiskGetsAllJobs(t *testing.T) {
	t.Parallel()
	const jobs = 20
	returns := 200
	if n, err := strconv.Atoi(os.Getenv("SALTERN_TEST_IMPORT_RETURNS")); err == nil {
		returns = n
	}
	shared := t.TempDir()
	jids := writePeerJobs(t, shared, jobs, returns)

	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs")}
	begin := time.Now()
	usedBefore := cpu()
	c := memberOf(t, "10.0.0.3", shared, cfg, time.Now(), 0)
	handed := uint64(returns + returns/10 + 2*jobs)
	if !await.Within(10*time.Minute, func() bool { return c.ClusterStats().Imported >= handed }) {
		t.Fatalf("%d records of %d are imported", c.ClusterStats().Imported, handed)
	}
	took := time.Since(begin)
	stats := c.Stats()
	t.Logf("%d returns in %v, %v of processor, %d syncs", returns, took, cpu()-usedBefore, stats.Commits)

	for _, jid := range jids {
		got, err := c.Returns(t.Context(), jid)
		check.Must(t, err)
		if got.Len() != returns/jobs {
			t.Errorf("job %s has %d returns of %d", jid, got.Len(), returns/jobs)
		}
		load, err := c.Load(t.Context(), jid)
		check.Must(t, err)
		if load.Str("fun") != "test.ping" {
			t.Errorf("job %s has the load %v", jid, load)
		}
	}
	// A master that ends before it notes the segments reads them again: nothing changes.
	before := c.Stats().Records
	c.Cluster.mu.Lock()
	clear(c.imported)
	clear(c.records)
	c.Cluster.mu.Unlock()
	check.Must(t, c.Import(t.Context()))
	if again := c.Stats().Records; again != before {
		t.Errorf("%d records were stored again", again-before)
	}
}

// writePeerJobs hands over jobs and their returns as two masters do, and returns the ids of the jobs. Both
// masters hand over every tenth return.
func writePeerJobs(t *testing.T, shared string, jobs, returns int) []string {
	t.Helper()
	began := time.Now().Add(-time.Hour)
	a := member(t, "10.0.0.1", shared, t.TempDir())
	b := member(t, "10.0.0.2", shared, t.TempDir())

	jids := make([]string, jobs)
	for i := range jids {
		jids[i] = FromTime(began.Add(time.Duration(i) * time.Second))
		load := value.NewMap("jid", jids[i], "fun", "test.ping", "tgt", "*")
		check.Must(t, a.SaveLoad(t.Context(), jids[i], load, []string{}))
	}
	check.Must(t, a.volume.addAndWait(t.Context()))

	var ofA, ofB []*record
	for i := range returns {
		r, _, err := a.newReturn(ret(jids[i%jobs], fmt.Sprintf("minion-%d.example.com", i), true))
		check.Must(t, err)
		r.time = began.UnixNano()
		if i%2 == 0 || i%10 == 1 {
			ofA = append(ofA, r)
		}
		if i%2 == 1 {
			ofB = append(ofB, r)
		}
	}
	check.Must(t, a.volume.addAndWait(t.Context(), copies(ofA)...))
	check.Must(t, b.volume.addAndWait(t.Context(), copies(ofB)...))
	a.end(t)
	b.end(t)
	return jids
}

// TestImportOnFailingDisk: syncs of the journal fail again and again while a master imports. In the end it has all
// returns, and its archive got each once, with the load of its job.
func TestImportOnFailingDisk(t *testing.T) {
	t.Parallel()
	const jobs = 40
	const returns = 400
	shared := t.TempDir()
	writePeerJobs(t, shared, jobs, returns)

	var syncs atomic.Uint64
	archive := newFakeArchive()
	cfg := Config{
		Dir:     filepath.Join(t.TempDir(), "jobs"),
		Archive: archive,
		fault: func(op string) error {
			if op == "sync" && syncs.Add(1)*2654435761>>20%2 == 0 { // no regular order
				return syscall.EIO
			}
			return nil
		},
	}
	c := memberOf(t, "10.0.0.3", shared, cfg, time.Now(), 0)
	handed := uint64(returns + returns/10 + 2*jobs)
	await.That(t, "all records are imported", func() bool {
		_ = c.Import(t.Context()) // fails often
		return c.ClusterStats().Imported >= handed
	})
	await.That(t, "the archive has all returns", func() bool { return archive.count() >= returns })

	archive.mu.Lock()
	defer archive.mu.Unlock()
	if archive.times != returns {
		t.Errorf("the archive got %d returns, want %d", archive.times, returns)
	}
	for minion, function := range archive.loads {
		if function != "test.ping" {
			t.Errorf("the archive has the return of %s with the load of %q", minion, function)
		}
	}
}

// TestImportOnHangingDisk: while the disk does not answer, an import keeps few records in memory, and ends when its
// context does. What it has not finished is imported later.
func TestImportOnHangingDisk(t *testing.T) {
	t.Parallel()
	const returns = 3 * mostInFlight
	shared := t.TempDir()
	disk := newHeldSync()
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs"), fault: disk.fault}
	c := memberOf(t, "10.0.0.3", shared, cfg, time.Now(), 0)
	proceed := sync.OnceFunc(func() { close(disk.proceed) })
	t.Cleanup(proceed)

	a := member(t, "10.0.0.1", shared, t.TempDir())
	check.Must(t, a.SaveLoad(t.Context(), jid1, value.NewMap("jid", jid1, "fun", "f"), []string{"m1"}))
	check.Must(t, a.volume.addAndWait(t.Context()))
	check.Must(t, c.Import(t.Context()))
	before := c.ClusterStats().Imported
	var recs []*record
	for i := range returns {
		r, _, err := a.newReturn(ret(jid1, fmt.Sprint("m", i), true))
		check.Must(t, err)
		r.time = time.Now().Add(-time.Hour).UnixNano()
		recs = append(recs, r)
	}
	check.Must(t, a.volume.addAndWait(t.Context(), copies(recs)...))

	disk.armed.Store(true)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- c.Import(ctx) }()
	await.That(t, "the import waits for the disk", func() bool { return openRecords(c, jid1) >= mostInFlight })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the import has ended with %v", err)
	}
	if n := openRecords(c, jid1); n > mostInFlight {
		t.Errorf("%d records in memory, at most %d expected", n, mostInFlight)
	}
	if n := c.ClusterStats().Imported - before; n > 0 {
		t.Errorf("%d records count as imported", n)
	}

	proceed() // the records of this sync fail
	await.That(t, "all are imported", func() bool {
		_ = c.Import(t.Context()) // some may be those that fail
		return c.ClusterStats().Imported == before+returns
	})
	got, err := c.Returns(t.Context(), jid1)
	check.Must(t, err)
	if got.Len() != returns {
		t.Errorf("%d returns, want %d", got.Len(), returns)
	}
}

// openRecords returns how many records of a job are not durable or not archived.
func openRecords(c *fellow, jid string) int {
	c.overlay.mu.RLock()
	defer c.overlay.mu.RUnlock()
	if j := c.overlay.jobs[jid]; j != nil {
		return j.records
	}
	return 0
}
