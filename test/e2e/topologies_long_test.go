//go:build e2e && mixed

package e2e

import (
	"fmt"
	"testing"

	"saltern/test/lab"
)

// TestTopologiesMixed: the walkthroughs of several masters with one of ours
// and one of Salt's in either order, and of two of Salt's to compare with.
// For a quiet machine: it measures.
func TestTopologiesMixed(t *testing.T) {
	kind := map[bool]string{false: "ours", true: "Salt's"}
	for _, x := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
		name := fmt.Sprintf("first %s, second %s", kind[x[0]], kind[x[1]])
		t.Run("hot, "+name, func(t *testing.T) { hot(t, x[0], x[1], lab.Versions()...) })
		for _, v := range lab.Versions() {
			t.Run("failover, "+name+", minion "+v, func(t *testing.T) {
				if d := failover(t, x[0], x[1], v, v != lab.Versions()[1]); d > failoverLimit && !x[0] && !x[1] {
					t.Errorf("the second master had the minion after %s, more than %s", d, failoverLimit)
				}
			})
		}
	}
}
