package nodes

import (
	"errors"
	"fmt"
	"time"
)

// Turn is the right of a node to be out of service for a while. Only one node at a time has it, so
// that the machines of a cluster restart one after another.
type Turn struct {
	// Node is the name of the node that has the turn.
	Node string `json:"node"`
	// Life identifies the supervisor process that acquired the turn. A later process of the same
	// node releases the turn once the node works completely again.
	Life  string    `json:"life"`
	Since time.Time `json:"since"`
	// Drained reports whether the node is drained only because of the turn.
	Drained bool `json:"drained,omitempty"`
	// Options reports whether the turn is for a change of options. The node that has it restarts no
	// machine, but the masters of all nodes, one after another, so that they load the options. No
	// node is drained for such a turn.
	Options bool `json:"options,omitempty"`
	// Key reports whether the change of options includes a new key of the cluster.
	Key bool `json:"key,omitempty"`
	// Until is when the turn expires unless the node extends it. It may be zero: the turn does not
	// expire.
	Until time.Time `json:"until,omitzero"`
}

// ErrTurn means that another node has the turn.
var ErrTurn = errors.New("has the turn")

// HeldError is an [ErrTurn] that says which node has the turn, and for what purpose.
type HeldError struct{ Turn Turn }

// Error returns a text for an administrator.
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

// Unwrap returns [ErrTurn].
func (e *HeldError) Unwrap() error { return ErrTurn }

// HasTurn returns the turn, and reports whether a node of the cluster has it at that time.
func (t *Table) HasTurn(at time.Time) (Turn, bool) {
	if t.Turn == nil {
		return Turn{}, false
	}
	n, ok := t.Find(t.Turn.Node)
	over := !t.Turn.Until.IsZero() && at.After(t.Turn.Until)
	return *t.Turn, ok && n.State != Removed && !over
}

// TakeTurn assigns the turn to the node to.Node at the time to.Since, and drains the node unless
// the turn is for options. A node that has the turn can extend it for the same purpose. If force is
// set, TakeTurn assigns the turn even if another node has it.
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

// GiveTurn releases the turn of a node, and ends the draining that TakeTurn began. It reports
// whether the node had the turn.
func (t *Table) GiveTurn(node string) bool {
	if t.Turn == nil || t.Turn.Node != node {
		return false
	}
	if n, ok := t.Find(node); ok && t.Turn.Drained && n.State == Draining {
		_ = t.Set(node, Member) // cannot fail: Find has found the node
	}
	t.Turn = nil
	return true
}
