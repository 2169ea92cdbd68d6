package nodes

import (
	"errors"
	"testing"
	"time"
)

func TestTurn(t *testing.T) {
	at := time.Unix(1750000000, 0)
	three := func() *Table {
		return &Table{Nodes: []Node{{Name: "n1", State: Member}, {Name: "n2", State: Member}, {Name: "n3", State: Draining}}}
	}
	state := func(tab *Table, name string) State {
		n, _ := tab.Find(name)
		return n.State
	}
	tab := three()
	if err := tab.TakeTurn(Turn{Node: "n1", Life: "a", Since: at}, false); err != nil || state(tab, "n1") != Draining {
		t.Fatalf("%v %+v", err, tab)
	}
	if err := tab.TakeTurn(Turn{Node: "n2", Life: "b", Since: at}, false); !errors.Is(err, ErrTurn) || state(tab, "n2") != Member {
		t.Fatalf("a second node has it too: %v", err)
	}
	// The same node asks again: it is still drained because of the turn.
	if err := tab.TakeTurn(Turn{Node: "n1", Life: "c", Since: at}, false); err != nil || !tab.Turn.Drained || tab.Turn.Life != "c" {
		t.Fatalf("again: %v %+v", err, tab.Turn)
	}
	if tab.GiveTurn("n2") || !tab.GiveTurn("n1") || tab.Turn != nil || state(tab, "n1") != Member {
		t.Fatalf("given back: %+v", tab)
	}

	// What was drained by hand stays so.
	if err := tab.TakeTurn(Turn{Node: "n3", Life: "a", Since: at}, false); err != nil || !tab.GiveTurn("n3") || state(tab, "n3") != Draining {
		t.Errorf("%v %+v", err, tab)
	}

	// A node that is gone for good has no turn; force takes it from any.
	tab = three()
	_ = tab.TakeTurn(Turn{Node: "n1"}, false)
	_ = tab.Set("n1", Removed)
	if err := tab.TakeTurn(Turn{Node: "n2"}, false); err != nil || tab.Turn.Node != "n2" {
		t.Errorf("after a removal: %v %+v", err, tab.Turn)
	}
	if err := tab.TakeTurn(Turn{Node: "n3"}, true); err != nil || tab.Turn.Node != "n3" || state(tab, "n2") != Member {
		t.Errorf("by force: %v %+v", err, tab)
	}
	if err := tab.TakeTurn(Turn{Node: "n4"}, true); err == nil {
		t.Error("a stranger has it")
	}
	c := tab.Clone()
	c.Turn.Node = "x"
	if tab.Turn.Node != "n3" {
		t.Error("a copy shares the turn")
	}
}
