package jobs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestReturnBeforeItsLoad: a master that was away reads a return in an older segment than the load of
// the return's job. Its archive gets the return with the load all the same.
func TestReturnBeforeItsLoad(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	load := value.NewMap("jid", jid1, "fun", "state.apply", "user", "ann")

	b := member(t, "10.0.0.2", shared, t.TempDir())
	b.wait(-time.Minute) // its segment is the older one
	check.Must(t, b.StageCopy(t.Context(), "10.0.0.1", jid1, load, []string{"m1"}))
	b.peers.err = ErrOnlyMaster
	check.Must(t, b.save("m1", "one"))
	for i := range 20 { // while these are read, the writer archives the first
		check.Must(t, b.save(fmt.Sprint("other", i), "two"))
	}
	check.Must(t, b.volume.addAndWait(t.Context()))

	a := member(t, "10.0.0.1", shared, t.TempDir())
	check.Must(t, a.SaveLoad(t.Context(), jid1, load, []string{"m1"}))
	check.Must(t, a.volume.addAndWait(t.Context()))

	archive := newFakeArchive()
	c := memberWith(t, "10.0.0.3", shared, t.TempDir(), archive)
	check.Must(t, c.Import(t.Context()))
	await.That(t, "the archive has the returns", func() bool { return archive.count() == 21 })
	if got := archive.functionOf("m1"); got != "state.apply" {
		t.Errorf("the archive has the return with the load of %q", got)
	}
}

// TestReturnHandedOverBeforeItsLoad: a master that was away for seconds reads a return before another master
// has handed over the load of its job. Its archive gets the return once, with the load.
func TestReturnHandedOverBeforeItsLoad(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	load := value.NewMap("jid", jid1, "fun", "state.apply", "user", "ann")
	a := member(t, "10.0.0.1", shared, t.TempDir())
	b := member(t, "10.0.0.2", shared, t.TempDir())
	check.Must(t, b.StageCopy(t.Context(), "10.0.0.1", jid1, load, []string{"m1"}))
	b.peers.err = ErrOnlyMaster
	check.Must(t, b.save("m1", "one"))
	check.Must(t, b.volume.addAndWait(t.Context()))

	archive := &refillArchive{fakeArchive: newFakeArchive()}
	c := memberWith(t, "10.0.0.3", shared, t.TempDir(), archive)
	check.Must(t, c.Import(t.Context()))
	if n := archive.count(); n > 0 {
		t.Errorf("the archive has %d returns of a job that nobody knows yet", n)
	}
	if n := archive.missing.Load(); n != 1 {
		t.Errorf("the archive lacks returns from %d sources, want 1", n)
	}
	check.Must(t, a.SaveLoad(t.Context(), jid1, load, []string{"m1"}))
	check.Must(t, a.volume.addAndWait(t.Context()))
	check.Must(t, c.Import(t.Context()))
	await.That(t, "the archive has the return", func() bool { return archive.count() == 1 })
	if got := archive.functionOf("m1"); got != "state.apply" {
		t.Errorf("the archive has the return with the load of %q", got)
	}
	if n := archive.missing.Load(); n != 0 {
		t.Errorf("all is read, and the archive lacks returns from %d sources", n)
	}

	// Who comes later, and nobody has a load, takes the return nevertheless.
	lost := t.TempDir()
	e := member(t, "10.0.0.5", lost, t.TempDir())
	check.Must(t, e.StageCopy(t.Context(), "10.0.0.1", jid1, load, []string{"m1"}))
	e.peers.err = ErrOnlyMaster
	check.Must(t, e.save("m1", "one"))
	check.Must(t, e.volume.addAndWait(t.Context()))
	archive = &refillArchive{fakeArchive: newFakeArchive()}
	d := memberWith(t, "10.0.0.4", lost, t.TempDir(), archive)
	d.wait(-5 * time.Second) // the clocks of masters differ
	check.Must(t, d.Import(t.Context()))
	if n := archive.count(); n > 0 {
		t.Errorf("the archive has %d returns that came from a master whose clock is ahead", n)
	}
	d.wait(loadComes + 10*time.Second)
	check.Must(t, d.Import(t.Context()))
	await.That(t, "the archive has the return", func() bool { return archive.count() == 1 })
}

// TestStageOutlastsItsCaller: a job that the journal has when its caller's time ends is staged.
func TestStageOutlastsItsCaller(t *testing.T) {
	t.Parallel()
	var leave atomic.Pointer[context.CancelFunc]
	c := open(t, Config{fault: func(op string) error {
		if end := leave.Load(); op == "sync" && end != nil {
			(*end)()
		}
		return nil
	}})

	for i := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		leave.Store(&cancel)
		jid := FromTime(time.Unix(1e9, 0).Add(time.Duration(i) * time.Second))
		if _, err := c.Stage(ctx, jid, value.NewMap("jid", jid, "fun", "f"), []string{"m"}); err != nil {
			t.Fatalf("the caller is told of an error, and the job is listed: %v", err)
		}
	}
}

// TestLoadAfterItsReturn: a syndic tells the load of a job to one master only, and returns of the job come to the others
// before it. All masters have the load and the minions in the end, also when the records come twice.
func TestLoadAfterItsReturn(t *testing.T) {
	t.Parallel()
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprintf("return elsewhere first %t", elsewhere), func(t *testing.T) {
			t.Parallel()
			loadAfterItsReturn(t, elsewhere)
		})
	}
}

// loadAfterItsReturn gives a cluster a job and its returns. elsewhere means that a return comes to another master before
// any master knows the load.
func loadAfterItsReturn(t *testing.T, elsewhere bool) {
	shared := t.TempDir()
	a := member(t, "10.0.0.1", shared, t.TempDir())
	b := member(t, "10.0.0.2", shared, t.TempDir())
	c := member(t, "10.0.0.3", shared, t.TempDir())
	a.peers.to = []*Cluster{b.Cluster, c.Cluster}
	b.peers.to = []*Cluster{a.Cluster, c.Cluster}

	ret := func(id string) Return {
		return ReturnOf(value.NewMap("jid", jid1, "id", id, "fun", "state.apply", "return", true))
	}
	if elsewhere {
		_, err := b.SaveReturn(await.Context(t), ret("low1"))
		check.Must(t, err)
	}
	load := value.NewMap("jid", jid1, "fun", "state.apply", "user", "ann", "tgt", "low*", "tgt_type", "glob")
	check.Must(t, a.SaveLoad(await.Context(t), jid1, load, []string{}))
	check.Must(t, a.AddMinions(await.Context(t), jid1, []string{"low1", "low2"}, "syndic"))
	_, err := a.SaveReturn(await.Context(t), ret("low2"))
	check.Must(t, err)

	for _, master := range []*fellow{a, b} {
		check.Must(t, master.volume.addAndWait(t.Context()))
	}
	for range 2 {
		for _, master := range []*fellow{a, b, c} {
			check.Must(t, master.Import(t.Context()))
			got, err := master.Load(await.Context(t), jid1)
			check.Must(t, err)
			_, fromReturn := got.Get("return")
			isWhole := got.Str("user") == "ann" && got.Str("tgt") == "low*" && fmt.Sprint(got.List("Minions")) == "[low1 low2]"
			if fromReturn || !isWhole {
				t.Errorf("%s has the load %s", master.cfg.ID, value.Repr(got))
			}
		}
		for _, master := range []*fellow{a, b, c} { // what it holds for another one, as when that is lost
			master.wait(heldFor + time.Minute)
			check.Must(t, master.volume.addAndWait(t.Context(), master.held.popDue(master.now())...))
		}
	}
}

// TestLoadBesideOneOfAReturn: a master that knows a job by a copy of its return only takes the load of whoever has started
// it, and no return replaces the load of a caller who has chosen the id.
func TestLoadBesideOneOfAReturn(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	a := member(t, "10.0.0.1", shared, t.TempDir())
	b := member(t, "10.0.0.2", shared, t.TempDir())
	ofReturn := value.NewMap("jid", jid1, "id", "m1", "fun", "state.apply", "return", true, "retcode", 0, "success", true)
	check.Must(t, b.SaveCopy(t.Context(), "10.0.0.1", ReturnOf(ofReturn)))
	b.PeerLost("10.0.0.1")
	check.Must(t, b.volume.addAndWait(t.Context()))

	chosen := value.NewMap("jid", jid1, "fun", "state.apply", "user", "bob", ChosenField, true, AccountField, "bob")
	check.Must(t, a.SaveLoad(t.Context(), jid1, chosen, []string{"m1"}))
	check.Must(t, a.volume.addAndWait(t.Context()))
	check.Must(t, b.Import(t.Context()))
	check.Must(t, a.Import(t.Context()))
	for name, c := range map[string]*fellow{"a": a, "b": b} {
		if load, err := c.Load(t.Context(), jid1); err != nil || load.Str("user") != "bob" {
			t.Errorf("%s has the load %v, %v", name, load, err)
		}
	}
}

// TestCopyOfAStartIsNotHandedOver: a master announces fewer fields of a job than it stores. Its peers do not hand over
// their copies of the load when the job is in the shared folder, but do if the folder has the job of somebody else.
func TestCopyOfAStartIsNotHandedOver(t *testing.T) {
	t.Parallel()
	args := []any{"a", value.NewMap("__kwarg__", true, "x", 1.5)}
	stored := value.NewMap("ret", "postgres", "fun", "state.apply", "arg", args, "kwargs", value.NewMap("delimiter", "|"),
		"tgt", "web*", "user", "ann", "jid", jid1)
	announced := value.NewMap("jid", jid1, "tgt_type", "glob", "tgt", "web*", "user", "ann", "fun", "state.apply", "arg", args)
	asBob := func(load *value.Map) *value.Map { return with(load, "user", "bob") }
	chosen := func(load *value.Map) *value.Map { return with(load, ChosenField, true) }
	for name, row := range map[string]struct {
		stored, announced *value.Map
		held              int
	}{
		"same job":               {stored, announced, 0},
		"same job, chosen id":    {chosen(stored), chosen(announced), 0},
		"same job, other fields": {announced, stored, 0},
		"of another user":        {chosen(stored), chosen(asBob(announced)), 1},
		"of another rank":        {stored, chosen(announced), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := t.TempDir()
			a := member(t, "10.0.0.1", shared, t.TempDir())
			b := member(t, "10.0.0.2", shared, t.TempDir())
			check.Must(t, b.StageCopy(t.Context(), "10.0.0.1", jid1, row.announced, []string{"web2", "web1"}))
			check.Must(t, a.SaveLoad(t.Context(), jid1, row.stored, []string{"web1", "web2"}))
			check.Must(t, a.volume.addAndWait(t.Context()))
			check.Must(t, b.Import(t.Context()))
			if n := b.ClusterStats().Held; n != row.held {
				t.Errorf("%d held, want %d", n, row.held)
			}
			b.handOver(t)
			if n := b.ClusterStats().Handed; n != uint64(row.held) {
				t.Errorf("%d handed over, want %d", n, row.held)
			}
		})
	}
}

// with returns a load with one more field.
func with(load *value.Map, field string, v any) *value.Map {
	changed := load.Clone()
	changed.Set(field, v)
	return changed
}

// TestStageCopyDoesNotAskTheDisk: the event that announces a job of a peer does not wait for a disk that hangs, also if it
// is of a further slice of a batch. So the time of the record does not depend on what the disk has, unless the caller has
// chosen the job id: such a load may replace that of another caller, and whoever learns it has read the disk before.
func TestStageCopyDoesNotAskTheDisk(t *testing.T) {
	t.Parallel()
	load := value.NewMap("jid", jid1, "fun", "state.apply", "user", "ann")
	for name, row := range map[string]struct {
		load    *value.Map
		isAsked bool
	}{
		"id of a master": {load, false},
		"chosen id":      {with(load, ChosenField, true), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := member(t, "10.0.0.2", t.TempDir(), t.TempDir())
			check.Must(t, b.SaveLoad(t.Context(), jid1, load, nil))
			flushed(t, b.Local)
			dir := b.files.jobDir(jid1)
			check.Must(t, os.MkdirAll(dir, 0o700))
			check.Must(t, os.WriteFile(filepath.Join(dir, loadFile), nil, 0o600))
			b.wait(-time.Hour)
			now := b.now().UnixNano()
			check.Must(t, b.StageCopy(t.Context(), "10.0.0.1", jid1, row.load, []string{"m1"}))

			b.held.mu.Lock()
			at := b.held.byKey[heldKey{kindLoad, jid1, ""}].time
			b.held.mu.Unlock()
			if isAsked := at != now; isAsked != row.isAsked {
				t.Errorf("the disk is asked: %t, want %t", isAsked, row.isAsked)
			}
		})
	}
}
