package nodes

import (
	"errors"
	"fmt"
	"time"
)

// Turn is the right to be away for a while. One node at a time has it, so that
// machines of a cluster are restarted one after another.
type Turn struct {
	// Node has it.
	Node string `json:"node"`
	// Life is that of the supervisor that took it; a later one gives it back,
	// once its node does all its work again.
	Life  string    `json:"life"`
	Since time.Time `json:"since"`
	// Drained: the node is drained because of the turn, and no longer than it.
	Drained bool `json:"drained,omitempty"`
}

// ErrTurn means that another node has the turn.
var ErrTurn = errors.New("has the turn")

// HasTurn gives the turn, if a node that belongs to the cluster has it.
func (t *Table) HasTurn() (Turn, bool) {
	if t.Turn == nil {
		return Turn{}, false
	}
	n, ok := t.Find(t.Turn.Node)
	return *t.Turn, ok && n.State != Removed
}

// TakeTurn gives the turn to a node and has it drained. force takes it away
// from another one.
func (t *Table) TakeTurn(to Turn, force bool) error {
	n, ok := t.Find(to.Node)
	if !ok || n.State == Removed {
		return fmt.Errorf("there is no node %s", to.Node)
	}
	if now, ok := t.HasTurn(); ok && now.Node != to.Node {
		if !force {
			return fmt.Errorf("%s %w since %s", now.Node, ErrTurn, now.Since.UTC().Format("15:04:05 UTC"))
		}
		t.GiveTurn(now.Node)
	} else if ok {
		to.Drained = now.Drained
	}
	if n.State == Member {
		to.Drained = true
		if err := t.Set(to.Node, Draining); err != nil {
			return err
		}
	}
	t.Turn = &to
	return nil
}

// GiveTurn ends the turn of a node, and the drain that came with it. It tells
// whether that node had it.
func (t *Table) GiveTurn(node string) bool {
	if t.Turn == nil || t.Turn.Node != node {
		return false
	}
	if n, ok := t.Find(node); ok && t.Turn.Drained && n.State == Draining {
		_ = t.Set(node, Member) // it is there
	}
	t.Turn = nil
	return true
}
