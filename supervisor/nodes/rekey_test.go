package nodes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRekey: a node that is alone takes another cluster key into its table,
// here and on the shared storage; one that is not alone does not.
func TestRekey(t *testing.T) {
	for _, names := range [][]string{{"n1"}, {"n1", "n2"}} {
		dir, shared := t.TempDir(), t.TempDir()
		k, err := OpenKeeper(dir, shared)
		if err != nil {
			t.Fatal(err)
		}

		old := table(3, names...)
		if _, err := k.Offer(old); err != nil {
			t.Fatal(err)
		}

		fresh := strings.Repeat("cd", 32)
		err = Rekey(t.Context(), dir, shared, "n1", fresh)
		if len(names) > 1 {
			if _, serr := os.Stat(filepath.Join(shared, File)); !errors.Is(err, errNotAlone) || serr == nil {
				t.Errorf("not alone: %v", err)
			}
			continue
		}

		if err != nil {
			t.Fatal(err)
		}

		for _, d := range []string{dir, shared} {
			again, err := OpenKeeper(d, "")
			if err != nil {
				t.Fatal(err)
			}
			if got := again.Table(); got.KeyHash != fresh || got.Version <= old.Version || len(got.Nodes) != 1 {
				t.Errorf("%+v", got)
			}
		}

		if err := Rekey(t.Context(), dir, shared, "n1", fresh); err != nil {
			t.Errorf("the second time: %v", err)
		}
	}

	gone := table(1, "n1", "n2")
	gone.Nodes[1].State = Removed
	if err := gone.Alone("n1"); err != nil {
		t.Errorf("the other was removed: %v", err)
	}
}

// TestSetKey: a table with another key is taken by whoever knows one of the keys of
// before, also when he was away for several changes, and by nobody else.
func TestSetKey(t *testing.T) {
	first, second, third := table(3, "n1", "n2"), strings.Repeat("cd", 32), strings.Repeat("ef", 32)
	shared := t.TempDir()
	open := func() *Keeper {
		k, err := OpenKeeper(t.TempDir(), shared)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := k.Offer(first); err != nil {
			t.Fatal(err)
		}

		return k
	}

	here, away := open(), open()
	for _, hash := range []string{second, third, third} {
		if _, err := here.Change(t.Context(), func(t *Table) error { return t.SetKey(hash) }); err != nil {
			t.Fatal(err)
		}
	}

	if err := away.Look(t.Context()); err != nil {
		t.Fatal(err)
	}

	got := away.Table()
	if got.KeyHash != third || len(got.Former) != 2 || got.FirstKey() != first.KeyHash {
		t.Errorf("who was away has %+v", got)
	}

	if _, err := away.Change(t.Context(), func(t *Table) error { return t.Set("n2", Removed) }); err != nil {
		t.Errorf("who was away changes the table: %v", err)
	}

	stranger := got.Clone()
	stranger.Version, stranger.KeyHash, stranger.Former = 99, strings.Repeat("11", 32), nil
	if ok, err := away.Offer(stranger); ok || err == nil {
		t.Error("a table of another key was taken")
	}

	for i := range maxKeys + 2 {
		err := got.SetKey(strings.Repeat(string("0123456789abcdef"[i%16])+string("0123456789abcdef"[i/16]), 32))
		if (err == nil) != (i < maxKeys-2) {
			t.Fatalf("change %d: %v", i, err)
		}
	}

	if err := first.SetKey("no hash"); err == nil {
		t.Error("a key that is no hash was taken")
	}
}
