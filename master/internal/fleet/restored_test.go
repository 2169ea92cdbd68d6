package fleet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"saltern/internal/control"
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
		segments, err := filepath.Glob(source.dir + "/history/*.seg")
		check.Must(t, err)
		for _, path := range segments {
			b, err := os.ReadFile(path)
			check.Must(t, err)
			name := control.RestoredHistory + "one-" + filepath.Base(path)
			check.Must(t, writeFile(filepath.Join(node.dir, "history", name), string(b)))
		}
		node.reopen()
		got, want := node.recorder.Table().All(), whole.recorder.Table().All()
		for i := range got { // the cause needs the runs before, which the node did not have when it took these
			got[i].Summary = want[i].Summary
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("table:\n%+v, want\n%+v", got, want)
		}
		await.That(t, "nothing is left of the restore", func() bool {
			left, _ := filepath.Glob(node.dir + "/*/" + control.RestoredHistory + "*")
			more, _ := filepath.Glob(node.dir + "/" + control.RestoredHistory + "*")
			return len(left)+len(more) == 0
		})
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
