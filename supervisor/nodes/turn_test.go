package nodes

import (
	"errors"
	"testing"
	"time"
)

func TestTurn(t *testing.T) {
	at := time.Unix(1750000000, 0)
	three := func() *Table {
		return &Table{Nodes: []Node{
			{Name: "n1", State: Member},
			{Name: "n2", State: Member},
			{Name: "n3", State: Draining},
		}}
	}

	state := func(tab *Table, name string) State {
		n, _ := tab.Find(name)
		return n.State
	}

	tab := three()
	if err := tab.TakeTurn(Turn{Node: "n1", Life: "a", Since: at}, false); err != nil || state(tab, "n1") != Draining {
		t.Fatalf("%v %+v", err, tab)
	}

	if err := tab.TakeTurn(Turn{
		Node:  "n2",
		Life:  "b",
		Since: at,
	}, false); !errors.Is(err, ErrTurn) || state(tab, "n2") != Member {
		t.Fatalf("a second node has it too: %v", err)
	}

	// The same node asks again: it is still drained because of the turn.
	if err := tab.TakeTurn(Turn{
		Node:  "n1",
		Life:  "c",
		Since: at,
	}, false); err != nil || !tab.Turn.Drained || tab.Turn.Life != "c" {
		t.Fatalf("again: %v %+v", err, tab.Turn)
	}

	if tab.GiveTurn("n2") || !tab.GiveTurn("n1") || tab.Turn != nil || state(tab, "n1") != Member {
		t.Fatalf("given back: %+v", tab)
	}

	// What was drained by hand stays so.
	if err := tab.TakeTurn(Turn{
		Node:  "n3",
		Life:  "a",
		Since: at,
	}, false); err != nil || !tab.GiveTurn("n3") || state(tab, "n3") != Draining {
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

// Who has the masters take new options has the turn until a time, is not drained, and
// is told apart from who restarts.
func TestTurnForOptions(t *testing.T) {
	at := time.Unix(1750000000, 0)
	tab := &Table{Nodes: []Node{{Name: "n1", State: Member}, {Name: "n2", State: Member}}}
	one := Turn{Node: "n1", Life: "a", Since: at, Options: true, Until: at.Add(time.Minute)}
	if err := tab.TakeTurn(one, false); err != nil || tab.Nodes[0].State != Member {
		t.Fatalf("%v %+v", err, tab)
	}

	for _, other := range []Turn{
		{Node: "n2", Since: at},
		{Node: "n1", Since: at},
		{Node: "n2", Since: at, Options: true, Until: at.Add(time.Hour)},
	} {
		held := (*HeldError)(nil)
		if err := tab.TakeTurn(other, false); !errors.Is(err, ErrTurn) || !errors.As(err, &held) ||
			held.Turn.Node != "n1" {
			t.Errorf("%+v: %v", other, err)
		}
	}

	one.Until = at.Add(2 * time.Minute) // it is renewed
	if err := tab.TakeTurn(one, false); err != nil || tab.Turn.Until != one.Until {
		t.Errorf("again: %v %+v", err, tab.Turn)
	}

	if _, ok := tab.HasTurn(at.Add(2 * time.Minute)); !ok {
		t.Error("lost before its time")
	}

	late := at.Add(2*time.Minute + time.Second)
	if _, ok := tab.HasTurn(late); ok {
		t.Error("kept after its time")
	}

	if err := tab.TakeTurn(Turn{
		Node:  "n2",
		Since: late,
	}, false); err != nil || tab.Turn.Node != "n2" || tab.Nodes[1].State != Draining {
		t.Errorf("after its time: %v %+v", err, tab)
	}

	one.Since = late
	if err := tab.TakeTurn(one, false); !errors.Is(err, ErrTurn) {
		t.Errorf("while one restarts: %v", err)
	}
}
