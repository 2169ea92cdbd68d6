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
