package main

import "testing"

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 400}, {1 << 20, 400}, {4 << 20, 300}, {8 << 20, 100}, {32 << 20, 100}, {1 << 30, 100}} {
		if got := (memoryState{live: c.live}).percent(); got != c.want {
			t.Errorf("%d bytes live: %d, want %d", c.live, got, c.want)
		}
	}
}

func TestWasteful(t *testing.T) {
	for name, c := range map[string]struct {
		before, now memoryState
		want        bool
	}{
		"after a burst": {memoryState{allocs: 100 << 20}, memoryState{allocs: 101 << 20, returned: 60 << 20}, true},
		"busy":          {memoryState{allocs: 100 << 20}, memoryState{allocs: 120 << 20, returned: 60 << 20}, false},
		"returned already": {memoryState{allocs: 100 << 20},
			memoryState{allocs: 101 << 20, returned: 100 << 20}, false},
		"starts":        {memoryState{}, memoryState{allocs: 1 << 20}, false},
		"is still busy": {memoryState{allocs: 1 << 20}, memoryState{allocs: 7 << 20}, false},
		"has started":   {memoryState{allocs: 7 << 20}, memoryState{allocs: 8 << 20}, true},
	} {
		if got := c.now.wasteful(c.before); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
