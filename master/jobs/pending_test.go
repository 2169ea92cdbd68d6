package jobs

import (
	"context"
	"fmt"
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

// heldSync is a disk whose next sync of the journal waits, and then fails.
type heldSync struct {
	armed   atomic.Bool
	began   chan struct{}
	proceed chan struct{}
}

func newHeldSync() *heldSync {
	return &heldSync{began: make(chan struct{}), proceed: make(chan struct{})}
}

func (h *heldSync) fault(op string) error {
	if op != "sync" || !h.armed.CompareAndSwap(true, false) {
		return nil
	}
	close(h.began)
	<-h.proceed
	return syscall.EIO
}

// A return that was appended while the load of its job was being written, which failed, is not stored without it: it is
// refused, and the minion sends it again.
func TestReturnIsNotStoredWithoutALoadThatFailed(t *testing.T) {
	t.Parallel()
	load := value.NewMap("jid", jid1, "fun", "state.apply", "user", "ann")
	ofReturn := func(id string) Return {
		return ReturnOf(value.NewMap("jid", jid1, "id", id, "fun", "state.apply", "return", id, "retcode", 0, "success", true))
	}
	// stage begins to write a load. Nobody may wait for it: peers have it.
	for name, stage := range map[string]func(c *Cluster) error{
		"copy of a job": func(c *Cluster) error {
			return c.StageCopy(t.Context(), "10.0.0.1", jid1, load, []string{"m1"})
		},
		"own job": func(c *Cluster) error {
			go func() { _, _ = c.Stage(t.Context(), jid1, load, []string{"m1"}) }()
			return nil
		},
		"first return": func(c *Cluster) error {
			go func() { _, _ = c.SaveReturn(t.Context(), ofReturn("m0")) }()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := newHeldSync()
			archive := newFakeArchive()
			cfg := Config{
				Dir:     filepath.Join(t.TempDir(), "jobs"),
				Archive: archive,
				fault:   disk.fault,
			}
			c := memberOf(t, "10.0.0.2", t.TempDir(), cfg, time.Now(), 0)
			c.peers.err = ErrOnlyMaster
			disk.armed.Store(true)
			check.Must(t, stage(c.Cluster))
			<-disk.began

			var wait sync.WaitGroup
			wait.Go(func() { _, _ = c.SaveReturn(t.Context(), ofReturn("m1")) })
			wait.Go(func() { _ = c.SaveCopy(t.Context(), "10.0.0.1", ofReturn("m2")) })
			await.That(t, "the returns wait for the next sync", func() bool {
				c.journal.mu.Lock()
				defer c.journal.mu.Unlock()
				return c.journal.gathering != nil && len(c.journal.gathering.records) >= 2
			})
			close(disk.proceed)
			wait.Wait()
			flushed(t, c.Local)

			for _, id := range []string{"m0", "m1", "m2"} { // each comes again
				_, err := c.SaveReturn(t.Context(), ofReturn(id))
				check.Must(t, err)
			}
			await.That(t, "the archive has the returns", func() bool { return archive.count() == 3 })
			for _, id := range []string{"m0", "m1", "m2"} {
				if got := archive.functionOf(id); got != "state.apply" {
					t.Errorf("the archive has the return of %s with the load of %q", id, got)
				}
			}
			if got, err := c.Load(t.Context(), jid1); err != nil || got.Str("fun") != "state.apply" {
				t.Errorf("the load is %v, %v", got, err)
			}
		})
	}
}

// TestRefusedPrepChangesNothing: a call that was refused does not keep the returns of a job from being stored.
func TestRefusedPrepChangesNothing(t *testing.T) {
	t.Parallel()
	c := open(t, Config{})
	check.Must(t, c.SaveLoad(t.Context(), jid1, value.NewMap("jid", jid1, "fun", "test.ping"), nil))
	save(t, c, ret(jid1, "m1", true))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Prep(ended, jid1, true); err == nil {
		t.Fatal("a call is accepted whose time has ended")
	}
	save(t, c, ret(jid1, "m2", true))
	if returns, err := c.Returns(t.Context(), jid1); err != nil || returns.Len() != 2 {
		t.Errorf("%d returns, %v", returns.Len(), err)
	}

	_, err := c.Prep(t.Context(), jid1, true)
	check.Must(t, err)
	if stored, err := c.SaveReturn(t.Context(), ret(jid1, "m3", true)); stored || err != nil {
		t.Errorf("a return is stored after the job is to store none: %t, %v", stored, err)
	}
}

// A job that a peer has announced, and whose record failed here, is taken from the folder.
func TestFailedCopyIsImported(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	load := value.NewMap("jid", jid1, "fun", "state.apply", "user", "ann")
	a := member(t, "10.0.0.1", shared, t.TempDir())
	check.Must(t, a.SaveLoad(t.Context(), jid1, load, []string{"m1"}))

	disk := newHeldSync()
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs"), fault: disk.fault}
	b := memberOf(t, "10.0.0.2", shared, cfg, time.Now(), 0)
	disk.armed.Store(true)
	check.Must(t, b.StageCopy(t.Context(), "10.0.0.1", jid1, load, []string{"m1"}))
	<-disk.began

	check.Must(t, a.volume.addAndWait(t.Context()))
	imported := make(chan error, 1)
	go func() { imported <- b.Import(t.Context()) }()
	close(disk.proceed)
	<-imported
	check.Must(t, b.Import(t.Context()))
	got, err := b.Load(t.Context(), jid1)
	if err != nil || got.Str("user") != "ann" || fmt.Sprint(got.List("Minions")) != "[m1]" {
		t.Errorf("the load is %v, %v", got, err)
	}
}

// A return of an earlier run that its archive does not take yet is durable: a minion that sends it again is answered.
func TestRepeatOfAReturnThatWaitsForTheArchive(t *testing.T) {
	t.Parallel()
	archive := newFakeArchive()
	archive.fail(syscall.ENOSPC)
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs"), Archive: archive}
	c := open(t, cfg)
	save(t, c, ret(jid1, "m1", true))
	crash(t, c)

	c = open(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if stored, err := c.SaveReturn(ctx, ret(jid1, "m1", true)); stored || err != nil {
		t.Errorf("the repeat is stored: %v, %v", stored, err)
	}
}
