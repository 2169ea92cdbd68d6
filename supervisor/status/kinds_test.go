package status

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestCodesHaveKinds: a code that is only declared would be shown without a title and a next step.
func TestCodesHaveKinds(t *testing.T) {
	source, err := os.ReadFile("problem.go")
	if err != nil {
		t.Fatal(err)
	}

	declared := regexp.MustCompile(`(?m)^\t(\w+) +Code = "(SCA-\d+)"`).FindAllStringSubmatch(string(source), -1)
	if len(declared) < len(Kinds()) {
		t.Fatalf("%d codes are declared, and there are %d kinds", len(declared), len(Kinds()))
	}
	for _, d := range declared {
		if !slices.ContainsFunc(Kinds(), func(k Kind) bool { return string(k.Code) == d[2] }) {
			t.Errorf("%s (%s) has no row in the tables of kinds", d[1], d[2])
		}
	}
}

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
