package nodes

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/test/await"
	"saltern/test/baddisk"
)

func table(version uint64, names ...string) Table {
	t := Table{Version: version, Cluster: "c", KeyHash: strings.Repeat("ab", 32)}
	for i, n := range names {
		t.Nodes = append(t.Nodes, Node{Name: n, Address: fmt.Sprintf("127.0.70.%d", i+1), State: Member,
			Certificate: fmt.Sprintf("%064x", i+1), Storage: "data"})
	}
	return t
}

func keeper(t *testing.T, shared string) *Keeper {
	t.Helper()
	k, err := OpenKeeper(t.TempDir(), shared)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestOfferTakesOnlyNewer(t *testing.T) {
	dir := t.TempDir()
	k, err := OpenKeeper(dir, "")
	if err != nil {
		t.Fatal(err)
	}

	changed := k.Changed()
	for _, c := range []struct {
		t    Table
		took bool
		bad  bool
	}{
		{table(3, "a"), true, false},
		{table(3, "b"), false, false},
		{table(2, "b"), false, false},
		{Table{Version: 9, Cluster: "other", KeyHash: strings.Repeat("ab", 32), Nodes: table(1, "x").Nodes},
			false, true},
		{Table{Version: 9, Cluster: "c", KeyHash: strings.Repeat("cd", 32), Nodes: table(1, "x").Nodes}, false, true},
		{table(4, "a", "a"), false, true},
		{table(4, "../a"), false, true},
		{table(4), false, true},
		{table(4, "a", "b"), true, false},
	} {
		took, err := k.Offer(c.t)
		if took != c.took || (err != nil) != c.bad {
			t.Errorf("version %d of %s: %v %v", c.t.Version, c.t.Cluster, took, err)
		}
	}

	select {
	case <-changed:
	default:
		t.Error("the change was not told")
	}

	again, err := OpenKeeper(dir, "")
	if err != nil {
		t.Fatal(err)
	}

	if got := again.Table(); got.Version != 4 || len(got.Nodes) != 2 {
		t.Errorf("after a restart: %+v", got)
	}
}

// Several nodes change the table at the same time; nothing is lost.
// TestTableWhileTheDiskHangs: everybody reads the table while a newer one is written to a disk that
// does not answer. It is the older one until the newer one is on the disk.
func TestTableWhileTheDiskHangs(t *testing.T) {
	disk := baddisk.New(t, baddisk.Ext4)
	k, err := OpenKeeper(disk.Dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if took, err := k.Offer(table(3, "a")); !took || err != nil {
		t.Fatal(took, err)
	}

	disk.Freeze()
	ended := make(chan error, 1)
	go func() { _, err := k.Offer(table(4, "a", "b")); ended <- err }()
	// The write has begun when the keeper has no lock for another one.
	await.That(t, "the write begins", func() bool {
		if k.accepting.TryLock() {
			k.accepting.Unlock()
			return false
		}
		return true
	})

	versions := make(chan uint64, 1)
	go func() { <-time.After(50 * time.Millisecond); versions <- k.Table().Version; k.Changed() }()
	shown := await.Within(5*time.Second, func() bool { return len(versions) == 1 })
	disk.Thaw()
	if !shown {
		t.Error("nobody reads the table while the disk hangs")
	} else if v := <-versions; v != 3 {
		t.Errorf("version %d is shown, which is not on the disk", v)
	}
	if err := <-ended; err != nil || k.Table().Version != 4 {
		t.Errorf("%v, version %d", err, k.Table().Version)
	}
}

func TestChangesOfManyNodes(t *testing.T) {
	shared := t.TempDir()
	first := keeper(t, shared)
	if _, err := first.Offer(table(1, "n0")); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := first.Change(ctx, func(*Table) error { return nil }); err != nil {
		t.Fatal(err)
	}

	var all sync.WaitGroup
	for i := 1; i <= 10; i++ {
		k := keeper(t, shared)
		if _, err := k.Offer(table(1, "n0")); err != nil {
			t.Fatal(err)
		}

		all.Go(func() {
			_, err := k.Change(ctx, func(t *Table) error {
				t.Put(Node{
					Name:        fmt.Sprintf("n%d", i),
					Address:     fmt.Sprintf("127.0.70.%d", 10+i),
					State:       Joining,
					Certificate: fmt.Sprintf("%064x", 10+i),
				})
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()
	if err := first.Look(ctx); err != nil {
		t.Fatal(err)
	}

	if got := first.Table(); got.Version != 12 || len(got.Nodes) != 11 {
		t.Errorf("version %d, %d nodes", got.Version, len(got.Nodes))
	}

	refused := errors.New("no")
	if _, err := first.Change(ctx, func(*Table) error { return refused }); !errors.Is(err, refused) ||
		first.Table().Version != 12 {
		t.Errorf("a change that was refused: %v", err)
	}
}

func TestNoSharedStorage(t *testing.T) {
	k := keeper(t, filepath.Join(t.TempDir(), "not", "mounted"))
	if _, err := k.Offer(table(1, "a")); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Change(t.Context(), func(*Table) error { return nil }); err == nil {
		t.Error("changed a table that is not there")
	}
	if k.Table().Version != 1 {
		t.Error("the version grew")
	}
}

// A node that vanished in the middle of a change holds nobody up: what it had
// made is finished, what it had not is not there.
func TestNodeVanishesInAChange(t *testing.T) {
	shared := t.TempDir()
	a, b := keeper(t, shared), keeper(t, shared)
	for _, k := range []*Keeper{a, b} {
		if _, err := k.Offer(table(1, "a", "b")); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := a.Change(t.Context(), func(*Table) error { return nil }); err != nil {
		t.Fatal(err)
	}

	// Version 3 is made under the name of the successor, and a vanishes.
	three := table(3, "a", "b", "c")
	text, err := encode(three)
	if err != nil {
		t.Fatal(err)
	}

	two, err := os.ReadFile(filepath.Join(shared, File))
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(shared, fmt.Sprintf(".nodes.json.after-2-%.8x", sha256.Sum256(two))),
		text, 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got, err := b.Change(ctx, func(t *Table) error { return t.Set("b", Draining) })
	if err != nil || got.Version != 4 || len(got.Nodes) != 3 || got.Nodes[1].State != Draining {
		t.Errorf("%+v, %v", got, err)
	}

	if err := a.Look(ctx); err != nil || a.Table().Version != 4 {
		t.Errorf("the other node has version %d, %v", a.Table().Version, err)
	}
}

// A removed node is refused for ever, also when a new machine has its name.
func TestAttack12NameOfARemovedNode(t *testing.T) {
	tab := table(1, "a", "b")
	old := tab.Nodes[1]
	if err := tab.Set("b", Removed); err != nil {
		t.Fatal(err)
	}

	if err := Admit(&tab, old); !errors.Is(err, ErrRemoved) {
		t.Errorf("the removed node: %v", err)
	}

	fresh := old
	fresh.Certificate, fresh.State = fmt.Sprintf("%064x", 77), Joining
	if err := Admit(&tab, fresh); err != nil {
		t.Fatal(err)
	}

	if n, _ := tab.Find("b"); n.Certificate != fresh.Certificate || len(tab.Nodes) != 2 ||
		!tab.WasRemoved(old.Certificate) || tab.WasRemoved(fresh.Certificate) {
		t.Errorf("%+v", tab)
	}

	old.Name, old.Address = "c", "127.0.70.99"
	if err := Admit(&tab, old); !errors.Is(err, ErrRemoved) {
		t.Errorf("the removed node by another name: %v", err)
	}

	if err := tab.Check(); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	dir := f.TempDir()
	k, _ := OpenKeeper(dir, "")
	_, _ = k.Offer(table(7, "a", "b"))
	seed, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		f.Fatal(err)
	}

	f.Add(seed)
	f.Add([]byte(`{"version":1,"nodes":[{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Parse(b)
		if err == nil && (got.Check() != nil || len(got.Nodes) == 0) {
			t.Fatal("taken, but wrong")
		}
	})
}

// A change leaves a mark for who follows the table from outside; what is no
// change leaves none.
func TestChangeLeavesAMark(t *testing.T) {
	dir := t.TempDir()
	k, err := OpenKeeper(dir, "")
	if err != nil {
		t.Fatal(err)
	}

	marked := func() bool {
		_, err := os.Stat(filepath.Join(dir, ChangedFile))
		return err == nil
	}

	for _, c := range []struct {
		version uint64
		want    bool
	}{{1, true}, {1, false}, {2, true}} {
		if _, err := k.Offer(table(c.version, "a")); err != nil || marked() != c.want {
			t.Errorf("version %d: marked %v, %v", c.version, marked(), err)
		}

		for range 2 {
			if err := Seen(dir); err != nil || marked() {
				t.Errorf("version %d seen: %v", c.version, err)
			}
		}
	}
}

// Two tables of one version exist when machines were put back to different times: each node
// had its own, for good. That of the shared storage counts.
func TestTablesOfOneVersionAreSettled(t *testing.T) {
	shared := t.TempDir()
	a, b := keeper(t, shared), keeper(t, shared)
	if _, err := a.Offer(table(7, "a", "b")); err != nil {
		t.Fatal(err)
	}

	if _, err := b.Offer(table(6, "a", "b", "c")); err != nil {
		t.Fatal(err)
	}

	if _, err := b.Change(t.Context(), func(*Table) error { return nil }); err != nil { // 7 as well
		t.Fatal(err)
	}

	changed := a.Changed()
	for range 2 {
		if err := a.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	if got := a.Table(); got.Version != 7 || len(got.Nodes) != 3 {
		t.Errorf("version %d, %d nodes", got.Version, len(got.Nodes))
	}

	select {
	case <-changed:
	default:
		t.Error("who follows the table is not told")
	}

	changed = a.Changed()
	if err := a.Look(t.Context()); err != nil {
		t.Fatal(err)
	}

	select {
	case <-changed:
		t.Error("the same table is a change")
	default:
	}
}
