package pillar

import "testing"

// A pillar that was cleared while it was compiled is not kept.
func TestClearedWhileCompiling(t *testing.T) {
	var c clearances
	first, other := c.startCompiling("a"), c.startCompiling("b")
	c.noteCleared("a")
	second := c.startCompiling("a")
	if !first() || second() || other() {
		t.Error("it is not told who was cleared")
	}

	if len(c.compiling) != 0 {
		t.Errorf("%d minions are remembered", len(c.compiling))
	}

	c.noteCleared("a")
	if c.startCompiling("a")() {
		t.Error("a clear before the start counts")
	}
}
