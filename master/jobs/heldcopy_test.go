package jobs

import (
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestFailedCopyIsHandedOverAndStored: the disk of a master does not take the copy of a peer's job, and the master hands
// the copy over, because the peer is lost or says nothing. When the disk is well again, the master stores the job, too, and
// its archive gets the returns of the job with the load.
func TestFailedCopyIsHandedOverAndStored(t *testing.T) {
	t.Parallel()
	for handing, handOver := range map[string]func(b *fellow){
		"peer lost": func(b *fellow) { b.PeerLost("10.0.0.1") },
		"overdue": func(b *fellow) {
			b.wait(heldFor + time.Second)
			b.volume.queueRecords(b.held.popDue(b.now())...)
		},
	} {
		for _, op := range []string{"write", "sync", "create"} {
			for _, restart := range []string{"none", "crash", "crash after import", "end after import"} {
				t.Run(fmt.Sprint(handing, ", ", op, ", ", restart), func(t *testing.T) {
					t.Parallel()
					failedCopyComesBack(t, op, restart, handOver)
				})
			}
		}
	}
}

// failedCopyComesBack has operation op of a master's disk fail for the copy of a job. Then it has the master hand the copy
// over and begin again.
func failedCopyComesBack(t *testing.T, op, restart string, handOver func(b *fellow)) {
	shared := t.TempDir()
	var ill atomic.Bool
	archive := &archiveWithLoads{fakeArchive: newFakeArchive()}
	cfg := Config{
		Dir:     filepath.Join(t.TempDir(), "jobs"),
		Archive: archive,
		fault: func(now string) error {
			if now == op && ill.Load() {
				return syscall.EIO
			}
			return nil
		},
	}
	b := memberOf(t, "10.0.0.2", shared, cfg, time.Now(), 0)
	c := member(t, "10.0.0.3", shared, t.TempDir())
	c.peers.err = ErrOnlyMaster
	earlier := FromTime(b.now())
	startEarlier := func(master *fellow) {
		check.Must(t, master.SaveLoad(t.Context(), earlier, value.NewMap("jid", earlier, "fun", "test.ping"), []string{"m1"}))
		check.Must(t, master.volume.addAndWait(t.Context()))
	}
	startEarlier(c)
	if op != "create" { // the journal and the folder have segments of b already
		startEarlier(b)
	}

	load := value.NewMap("jid", jid1, "fun", "state.apply", "user", "ann")
	ill.Store(true)
	check.Must(t, b.StageCopy(t.Context(), "10.0.0.1", jid1, load, []string{"m1", "m2"}))
	await.That(t, "the copy has failed", func() bool { return !b.overlay.hasJob(jid1) })
	handOver(b)
	check.Must(t, b.volume.addAndWait(t.Context()))
	_ = b.Import(t.Context()) // it may fail as long as the disk is ill
	ill.Store(false)

	if strings.Contains(restart, "import") {
		check.Must(t, b.Import(t.Context()))
	}
	switch {
	case strings.HasPrefix(restart, "end"):
		b.end(t)
	case strings.HasPrefix(restart, "crash"):
		b.Cluster.stop()
		b.Cluster.wg.Wait()
		crash(t, b.Local)
		b.Cluster = nil
	}
	if restart != "none" {
		b = memberOf(t, "10.0.0.2", shared, cfg, b.now(), 0)
	}

	check.Must(t, c.Import(t.Context()))
	check.Must(t, c.save("m1", "one"))
	check.Must(t, c.volume.addAndWait(t.Context()))
	check.Must(t, b.Import(t.Context()))
	for _, master := range []*fellow{b, c} {
		got, err := master.Load(t.Context(), jid1)
		isWhole := got.Str("user") == "ann" && fmt.Sprint(got.List("Minions")) == "[m1 m2]"
		if err != nil || !isWhole || master.has(t, "m1") != "one" {
			t.Fatalf("%s has the load %v, %v, and the return %q", master.cfg.ID, got, err, master.has(t, "m1"))
		}
	}
	await.That(t, "the archive has the return", func() bool { return archive.count() == 1 })
	for jid := range archive.unknown.Range {
		t.Errorf("the archive got a return of %v without the load of the job", jid)
	}

	// All comes again, and changes nothing.
	before := b.Stats().Records
	b.Cluster.mu.Lock()
	maps.DeleteFunc(b.imported, func(string, int64) bool { return true })
	clear(b.records)
	b.Cluster.mu.Unlock()
	check.Must(t, b.Import(t.Context()))
	if again := b.Stats().Records - before; again > 0 {
		t.Errorf("%d records are stored again", again)
	}
}

// TestLoadThatFailsWhileItIsImported: a master reads the load of a job in the folder while its own record of the same job
// fails. It does not take the job for stored.
func TestLoadThatFailsWhileItIsImported(t *testing.T) {
	t.Parallel()
	cfg := Config{
		Dir:   filepath.Join(t.TempDir(), "jobs"),
		fault: func(string) error { return syscall.EIO },
	}
	b := memberOf(t, "10.0.0.2", t.TempDir(), cfg, time.Now(), 0)
	for i := range 3000 {
		jid := FromTime(b.now().Add(time.Duration(i) * time.Microsecond))
		recs, _, err := b.stageRecords(t.Context(), jid, value.NewMap("jid", jid, "fun", "test.ping"), []string{"m1"}, false)
		check.Must(t, err)
		for range i % 7 {
			runtime.Gosched()
		}
		written, err := b.cacheRecord(t.Context(), recs[1].copy(), map[string]bool{})
		check.Must(t, err)
		if len(written) == 0 {
			t.Fatalf("job %d is taken for stored", i)
		}
	}
}
