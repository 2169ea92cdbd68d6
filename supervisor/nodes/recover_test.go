package nodes

import "testing"

// The one node that is left has the table to itself; the lost ones are refused.
func TestRecover(t *testing.T) {
	dir := t.TempDir()
	k, err := OpenKeeper(dir, "")
	if err != nil {
		t.Fatal(err)
	}

	if err := Recover(dir, "b", "/brick/2"); err == nil {
		t.Error("without a table")
	}

	before := table(7, "a", "b", "c")
	before.Nodes[1].State = Draining
	if _, err := k.Offer(before); err != nil {
		t.Fatal(err)
	}

	if err := Recover(dir, "d", "/brick/2"); err == nil {
		t.Error("of a node that is not in it")
	}

	for range 2 {
		if err := Recover(dir, "b", "/brick/2"); err != nil {
			t.Fatal(err)
		}
	}

	k, err = OpenKeeper(dir, "")
	if err != nil {
		t.Fatal(err)
	}

	got := k.Table()
	p := got.Present()
	if len(p) != 1 || p[0].Name != "b" || p[0].State != Member || p[0].Brick != "/brick/2" ||
		got.Version < 1007 || got.KeyHash != before.KeyHash ||
		!got.WasRemoved(before.Nodes[0].Certificate) || !got.WasRemoved(before.Nodes[2].Certificate) {
		t.Errorf("%+v", got)
	}
}
