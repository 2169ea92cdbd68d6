package nodes

import (
	"fmt"
	"strings"
	"testing"

	"saltern/internal/control"
)

// TestFindHalves: what one of the two records lacks is found, and nothing is made of
// what only looks like it.
func TestFindHalves(t *testing.T) {
	cert := func(i int) string { return fmt.Sprintf("%064x", i) }
	at := func(i int) string { return fmt.Sprintf("127.0.70.%d", i) }
	in := func(list ...int) (out []control.RecordMaster) {
		for _, i := range list {
			out = append(out, control.RecordMaster{ID: at(i), Pub: "pub " + at(i), Own: true})
		}
		return out
	}

	named := func(i int) control.RecordMaster { return control.RecordMaster{ID: at(i), Node: cert(i)} }
	nameless := func(i int) control.RecordMaster { return control.RecordMaster{ID: at(i)} }
	for what, c := range map[string]struct {
		change  func(*Table)
		members []control.RecordMaster
		removed []control.RecordMaster
		want    string
	}{
		"whole": {
			members: in(1, 2, 3),
			removed: []control.RecordMaster{{ID: at(9), Node: cert(9)}},
		},
		"the table is behind": {members: in(1, 2), removed: []control.RecordMaster{named(3)}, want: "c table"},
		"of a node that joins": {
			change:  state("c", Joining),
			members: in(1, 2),
			removed: []control.RecordMaster{named(3)},
			want:    "c table",
		},
		"of a node that leaves": {
			change:  state("c", Leaving),
			members: in(1, 2),
			removed: []control.RecordMaster{named(3)},
			want:    "c table",
		},
		"of an arbiter": {
			change:  arbiter,
			members: in(1, 2),
			removed: []control.RecordMaster{named(3)},
			want:    "c table",
		},
		"an arbiter has no master": {
			change:  arbiter,
			members: in(1, 2),
			removed: []control.RecordMaster{nameless(3)},
		},
		"by address": {
			members: in(1, 2),
			removed: []control.RecordMaster{nameless(3)},
			want:    "c table?",
		},
		"by address, but it joins": {
			change:  state("c", Joining),
			members: in(1, 2),
			removed: []control.RecordMaster{nameless(3)},
		},
		"by address, but it is back": {members: in(1, 2, 3), removed: []control.RecordMaster{nameless(3)}},
		"away, and never removed":    {members: in(1, 2)},
		"its predecessor was removed": {
			members: in(1, 2),
			removed: []control.RecordMaster{{ID: at(3), Node: cert(9)}},
		},
		"both done": {
			change:  state("c", Removed),
			members: in(1, 2),
			removed: []control.RecordMaster{named(3)},
		},
		"the record is behind": {change: state("c", Removed), members: in(1, 2, 3), want: "c record " + at(3)},
		"the address has another node": {
			change:  reused,
			members: in(1, 2, 3),
			removed: []control.RecordMaster{named(3)},
		},
		"and the record not yet": {change: reused, members: in(1, 2, 3), want: "c secrets"},
		"it never had a master":  {change: state("c", Removed), members: in(1, 2), want: "c secrets"},
		"it was taken out by hand": {
			change:  state("c", Removed),
			members: in(1, 2),
			removed: []control.RecordMaster{nameless(3)},
		},
		"its master joined too late": {
			change:  state("c", Removed),
			members: in(1, 2, 3),
			removed: []control.RecordMaster{named(3)},
			want:    "c record " + at(3),
		},
		"one of Salt's is there": {
			change:  state("c", Removed),
			members: append(in(1, 2), control.RecordMaster{ID: at(3)}),
			removed: []control.RecordMaster{named(3)},
		},
		"the last node stays": {change: alone, removed: []control.RecordMaster{named(1), named(2), named(3)}},
		"no record":           {},
	} {
		tab := table(1, "a", "b", "c")
		if c.change != nil {
			c.change(&tab)
		}

		var got []string
		for _, h := range FindHalves(tab, control.Record{Members: c.members, Removed: c.removed}) {
			s := h.Node.Name + " table"
			if h.Guess {
				s += "?"
			}

			if r := h.Removal; r.Node != "" {
				s = h.Node.Name + " record " + r.ID
				if r.Key == control.NoMaster {
					s = h.Node.Name + " secrets"
				} else if r.Key != control.KeyFinger("pub "+r.ID) {
					t.Errorf("%s: %+v", what, r)
				}

				if r.Node != h.Node.Certificate {
					t.Errorf("%s: %+v", what, r)
				}
			}

			got = append(got, s)
		}

		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

func state(name string, s State) func(*Table) {
	return func(t *Table) {
		if err := t.Set(name, s); err != nil {
			for i := range t.Nodes { // no step leads there
				if t.Nodes[i].Name == name {
					t.Nodes[i].State = s
				}
			}
		}
	}
}

func arbiter(t *Table) { t.Nodes[2].Storage = ArbiterStorage }

func reused(t *Table) {
	t.Nodes[2].State = Removed
	n := t.Nodes[2]
	n.Name, n.State, n.Certificate = "d", Joining, strings.Repeat("d", 64)
	t.Put(n)
}

func alone(t *Table) { t.Nodes[1].State, t.Nodes[2].State = Removed, Removed }

// A removal names a machine by its key: another one that has its name by then stays.
func TestRemoveByKey(t *testing.T) {
	tab := table(1, "a", "b")
	old := tab.Nodes[1].Certificate
	for range 2 {
		if err := tab.Remove(old); err != nil || tab.Nodes[1].State != Removed {
			t.Fatalf("%+v %v", tab, err)
		}
	}

	fresh := tab.Nodes[1]
	fresh.State, fresh.Certificate = Joining, strings.Repeat("e", 64)
	if err := Admit(&tab, fresh); err != nil {
		t.Fatal(err)
	}

	if err := tab.Remove(old); err != nil || tab.Nodes[1].State != Joining {
		t.Errorf("%+v %v", tab, err)
	}

	if tab.Remove(strings.Repeat("f", 64)) == nil {
		t.Error("a machine that was never there")
	}
}
