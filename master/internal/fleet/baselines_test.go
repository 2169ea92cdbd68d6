package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// scopesOf returns the scopes of baselines, in their order.
func scopesOf(list []baseline) (scopes []uint64) {
	for i := range list {
		scopes = append(scopes, list[i].scope)
	}
	return scopes
}

// withBaselines returns an entry with a baseline of each scope, the newest first.
func withBaselines(orderBytes int, scopes ...uint64) *entry {
	e := &entry{}
	now := start.Add(time.Hour)
	for i, scope := range slices.Backward(scopes) {
		order := fmt.Sprintf("2026010100%02d%s", len(scopes)-i, strings.Repeat("0", orderBytes))
		e.keepBaseline(baseline{scope: scope, order: order, touched: make([]touched, maxTouched)}, now)
	}
	return e
}

// TestVersionBeforeReadsTheTable: it refuses a table with more than three baselines of a minion. Those of different
// states are saved first.
func TestVersionBeforeReadsTheTable(t *testing.T) {
	const mostBefore = 3
	for _, c := range []struct{ has, saved []uint64 }{
		{[]uint64{7}, []uint64{7}},
		{[]uint64{7, 8, 9}, []uint64{7, 8, 9}},
		{[]uint64{7, 7, 8, 9}, []uint64{7, 8, 9}},
		{[]uint64{7, 8, 7, 8}, []uint64{7, 8, 7}},
		{[]uint64{6, 7, 8, 9}, []uint64{6, 7, 8}},
	} {
		t.Run(fmt.Sprint(c.has), func(t *testing.T) {
			table := newTable()
			table.entries["web1"] = withBaselines(8, c.has...)
			table.changed = true
			packed, _ := table.pack()
			saved, _, err := parseTable(packed)
			if err != nil {
				t.Fatal(err)
			}
			got := scopesOf(saved.entries["web1"].baselines)
			if len(got) > mostBefore || !slices.Equal(got, c.saved) {
				t.Errorf("saved are %v, not %v", got, c.saved)
			}
			if kept := scopesOf(table.entries["web1"].baselines); !slices.Equal(kept, c.has) {
				t.Errorf("the entry has %v, not %v", kept, c.has)
			}
		})
	}
}

// TestLargeEntryKeepsBaselinesOfAllStates: an entry that is too large forgets the older of two baselines of the same
// states, not the only one of others.
func TestLargeEntryKeepsBaselinesOfAllStates(t *testing.T) {
	e := withBaselines(100, 7, 7, 8)
	for len(e.packed) < maxEntry/2 && e.size() <= maxEntry {
		e.packed = append(e.packed, 0)
	}
	e.fit(nil)
	if got := scopesOf(e.baselines); !slices.Equal(got, []uint64{7, 8}) {
		t.Errorf("baselines of %v are left", got)
	}
}
