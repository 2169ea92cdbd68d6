package pillar

import "testing"

// A pillar that was cleared while it was compiled is not kept.
func TestClearedWhileCompiling(t *testing.T) {
	var c clearances
	first, other := c.begin("a"), c.begin("b")
	c.clear("a")
	second := c.begin("a")
	if !first() || second() || other() {
		t.Error("it is not told who was cleared")
	}

	if len(c.m) != 0 {
		t.Errorf("%d minions are remembered", len(c.m))
	}

	c.clear("a")
	if c.begin("a")() {
		t.Error("a clear before the start counts")
	}
}
