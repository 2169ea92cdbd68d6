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
	// Options: the node does not restart, it has the masters of all nodes take new
	// options, one after another. Nobody is drained for that.
	Options bool `json:"options,omitempty"`
	// Key: the options come with another key of the cluster.
	Key bool `json:"key,omitempty"`
	// Until is when the turn ends by itself, unless it is taken again; zero: never.
	Until time.Time `json:"until,omitzero"`
}

// ErrTurn means that another one has the turn.
var ErrTurn = errors.New("has the turn")

// HeldError is [ErrTurn] and says who has it, and what for.
type HeldError struct{ Turn Turn }

// Error words it for an administrator.
func (e *HeldError) Error() string {
	since := e.Turn.Since.UTC().Format("15:04:05 UTC")
	if e.Turn.Key {
		return fmt.Sprintf("%s %v since %s: the masters take another key of the cluster one after another (import)",
			e.Turn.Node, ErrTurn, since)
	}
	if e.Turn.Options {
		return fmt.Sprintf("%s %v since %s: the masters take new options one after another (config apply)",
			e.Turn.Node, ErrTurn, since)
	}
	return fmt.Sprintf("%s %v since %s; it may restart at any moment", e.Turn.Node, ErrTurn, since)
}

// Unwrap gives [ErrTurn].
func (e *HeldError) Unwrap() error { return ErrTurn }

// HasTurn gives the turn, if a node that belongs to the cluster has it at that
// time.
func (t *Table) HasTurn(at time.Time) (Turn, bool) {
	if t.Turn == nil {
		return Turn{}, false
	}
	n, ok := t.Find(t.Turn.Node)
	over := !t.Turn.Until.IsZero() && at.After(t.Turn.Until)
	return *t.Turn, ok && n.State != Removed && !over
}

// TakeTurn gives the turn to a node, at the time to.Since, and has it drained
// unless it is for options. A node that has the turn takes it again, for the same
// purpose. force takes it away from another one.
func (t *Table) TakeTurn(to Turn, force bool) error {
	n, ok := t.Find(to.Node)
	if !ok || n.State == Removed {
		return fmt.Errorf("there is no node %s", to.Node)
	}

	if now, ok := t.HasTurn(to.Since); ok && (now.Node != to.Node || now.Options != to.Options) {
		if !force {
			return &HeldError{now}
		}
		t.GiveTurn(now.Node)
	} else if ok {
		to.Drained = now.Drained
	}

	if to.Options {
		t.Turn = &to
		return nil
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
