package fleet

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/history"
	"saltern/master/jobs"
	"saltern/test/await"
	"saltern/test/check"
)

// TestRestoredTable: some runs are in a backup, others on the node that it is restored to. The table, and what
// it says of the next run, is that of a node that had them all; also when the backup's table is damaged.
func TestRestoredTable(t *testing.T) {
	for seed := range uint64(3) {
		for _, damaged := range []bool{false, true} {
			t.Run(fmt.Sprint(seed, " damaged ", damaged), func(t *testing.T) {
				testRestoredTable(t, rand.New(rand.NewPCG(seed, 2)), damaged)
			})
		}
	}
}

func testRestoredTable(t *testing.T, r *rand.Rand, damaged bool) {
	source, node, whole := newBench(t), newBench(t), newBench(t)
	cut := r.IntN(200)
	var last jobs.Archived
	for i := range 200 {
		minion := fmt.Sprint("web", r.IntN(8))
		state := []string{"a=ok", "a=changed", "a=failed"}[r.IntN(3)]
		last = whole.archived(minion, "state.apply", "r1", states(state))
		if r.IntN(4) == 0 {
			last = whole.archived(minion, "test.ping", "", true)
		}
		whole.add(last)
		for _, b := range []*bench{source, node} {
			b.now = whole.now
		}
		if i < cut {
			source.add(last)
		} else {
			node.add(last)
		}
	}
	check.Must(t, source.recorder.Sync())
	check.Must(t, node.recorder.Sync())

	table, err := os.ReadFile(source.recorder.path())
	check.Must(t, err)
	if damaged && len(table) > 0 {
		table[len(table)/2] ^= 1
	}
	for range 2 { // the second restore changes nothing
		check.Must(t, writeFile(filepath.Join(node.dir, control.RestoredHistory+"one-"+tableFile), string(table)))
		restoreHistory(t, source, node)
		node.reopen()
		got, want := node.recorder.Table().All(), whole.recorder.Table().All()
		for i := range got { // the cause needs the runs before, which the node did not have when it took these
			got[i].Summary = want[i].Summary
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("table:\n%+v, want\n%+v", got, want)
		}
		await.That(t, "the restored segments are merged", func() bool { return !node.store.HasRestored() })
		if damaged {
			node.reopen() // its table stays until the history has all runs
		}
		if left, _ := filepath.Glob(node.dir + "/" + control.RestoredHistory + "*"); len(left) > 0 {
			t.Errorf("left of the restore: %v", left)
		}
	}

	if damaged {
		return // without the table of the backup nothing can be compared
	}
	next := whole.archived("web1", "state.apply", "r1", states("a=changed"))
	whole.add(next)
	node.now = whole.now
	node.add(next)
	node.wantCauses("web1", whole.causes("web1")...)
}

// restoreHistory copies the history of a node to another one as a restore does.
func restoreHistory(t *testing.T, source, node *bench) {
	t.Helper()
	segments, err := filepath.Glob(source.dir + "/history/*.seg")
	check.Must(t, err)
	for _, path := range segments {
		b, err := os.ReadFile(path)
		check.Must(t, err)
		name := control.RestoredHistory + "one-" + filepath.Base(path)
		check.Must(t, writeFile(filepath.Join(node.dir, "history", name), string(b)))
	}
}

// TestDamagedTableWaitsForTheHistory: the table of a backup is damaged, and the history takes the runs of the backup
// after the start. The next start reads them, although it knows the latest thousand runs.
func TestDamagedTableWaitsForTheHistory(t *testing.T) {
	dir := t.TempDir()
	store := &runList{waits: true}
	run := func(minion string, at time.Time) {
		store.runs = append(store.runs, history.Run{JID: jobs.FromTime(at), Minion: minion, Function: "test.ping", Time: at})
	}
	for i := range 1500 {
		run("web1", start.Add(time.Duration(i)*time.Second))
	}
	open := func() *Recorder {
		recorder, err := New(t.Context(), Config{
			Store: store,
			Dir:   dir,
			Now:   func() time.Time { return start.Add(day) },
			Log:   slog.New(slog.DiscardHandler),
		})
		check.Must(t, err)
		check.Must(t, recorder.Sync())
		return recorder
	}
	open()

	table := filepath.Join(dir, control.RestoredHistory+"one-"+tableFile)
	check.Must(t, writeFile(table, "torn"))
	open()
	run("web9", start.Add(-time.Hour))
	store.waits = false
	if _, ok := open().Table().Last("web9"); !ok {
		t.Error("the table lacks a minion that only the backup has")
	}
	if _, err := os.Lstat(table); err == nil {
		t.Error("the damaged table is still there")
	}
}

// TestRestoredTableThatCannotBeReadStays: it may be read at a later start.
func TestRestoredTableThatCannotBeReadStays(t *testing.T) {
	source, node := newBench(t), newBench(t)
	source.highstate("web1", "r1", "a=ok")
	check.Must(t, source.recorder.Sync())
	table := filepath.Join(node.dir, control.RestoredHistory+"one-"+tableFile)
	check.Must(t, os.Symlink("/proc/self/mem", table)) // a link is refused, and its file gives EIO

	node.reopen()
	if _, err := os.Lstat(table); err != nil {
		t.Fatalf("the table that cannot be read was removed: %v", err)
	}

	check.Must(t, os.Remove(table))
	check.Must(t, os.Rename(source.recorder.path(), table))
	node.reopen()
	if _, ok := node.recorder.Table().Last("web1"); !ok {
		t.Error("the table was not merged")
	}
}
