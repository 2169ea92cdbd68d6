package status

import (
	"slices"
	"testing"
)

// Each table has its own subject, by the hundreds of its codes, and no code is in two of them.
func TestKindsStandInTheTableOfTheirSubject(t *testing.T) {
	for _, c := range []struct {
		name     string
		table    []Kind
		hundreds string
	}{
		{"node", nodeKinds(), "056"},
		{"cluster", clusterKinds(), "0145"},
		{"balancer", balancerKinds(), "13"},
		{"master", masterKinds(), "2"},
		{"api", apiKinds(), "2"},
		{"git", gitKinds(), "2"},
		{"storage", storageKinds(), "4"},
		{"guards", guardKinds(), "56"},
		{"upkeep", upkeepKinds(), "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, k := range c.table {
				if !slices.Contains([]byte(c.hundreds), k.Code[4]) {
					t.Errorf("%s (%s) is of another subject", k.Code, k.Title)
				}
				if slices.ContainsFunc(c.table[:i], func(other Kind) bool { return other.Code == k.Code }) {
					t.Errorf("%s stands twice", k.Code)
				}
			}
		})
	}
}
