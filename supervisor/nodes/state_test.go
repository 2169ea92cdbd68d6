package nodes

import (
	"errors"
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

// A cluster has one arbiter at most; one that was removed counts no more, and the
// same machine may ask twice.
func TestAdmitArbiter(t *testing.T) {
	arbiter := Node{Name: "n3", Address: "10.0.0.3", State: Joining, Certificate: "c3", Storage: ArbiterStorage}
	other := Node{Name: "n4", Address: "10.0.0.4", State: Joining, Certificate: "c4", Storage: ArbiterStorage}
	table := Table{Nodes: []Node{{Name: "n1", Address: "10.0.0.1", State: Member, Certificate: "c1", Storage: "data"}}}
	for range 2 {
		if err := Admit(&table, arbiter); err != nil {
			t.Fatal(err)
		}
	}

	if err := Admit(&table, other); !errors.Is(err, ErrArbiter) {
		t.Errorf("a second one: %v", err)
	}

	if a, ok := table.Arbiter(); !ok || a.Name != "n3" || len(table.Serving()) != 1 || table.Serving()[0].Name != "n1" {
		t.Errorf("%+v", table)
	}

	if err := table.Set("n3", Removed); err != nil {
		t.Fatal(err)
	}

	if err := Admit(&table, other); err != nil {
		t.Errorf("after the first was removed: %v", err)
	}
}
