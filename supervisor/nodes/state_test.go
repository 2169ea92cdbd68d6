package nodes

import (
	"slices"
	"testing"
)

// A node that was removed stays so, and no step is skipped, whoever decided by an
// older table.
func TestStates(t *testing.T) {
	all := []State{Joining, Member, Draining, Leaving, Removed}
	for from, may := range map[State][]State{
		Joining: {Joining, Member, Leaving, Removed}, Member: {Member, Draining, Leaving, Removed}, Draining: {Draining, Member, Leaving, Removed},
		Leaving: {Leaving, Removed}, Removed: {Removed},
	} {
		for _, to := range all {
			table := Table{Nodes: []Node{{Name: "other", State: Joining}, {Name: "n", State: from}}}
			err := table.Set("n", to)
			if want := slices.Contains(may, to); want != (err == nil) {
				t.Errorf("%s to %s: %v", from, to, err)
			}
			if n, _ := table.Find("n"); err == nil && n.State != to || err != nil && n.State != from {
				t.Errorf("%s to %s: %v, and is %s", from, to, err, n.State)
			}
		}
	}
	if (&Table{}).Set("n", Member) == nil {
		t.Error("a node that is not there was set")
	}
}
