package nodes

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// maxLeap is how far the version of a table may be ahead of a node's own. No node ever misses
// maxLeap changes. Without the bound an attacker could use up the version numbers.
const maxLeap = 1 << 32

// CheckStep returns nil if next is a valid successor of the table now when the node from offers it.
// Otherwise it returns the reason. next must have passed [Table.Check].
//
// Any node may change the state and the directory of the copy in its own entry. It may acquire the
// turn if no node has it, and release its own turn. A node that serves ([Node.Serves]) may make
// every change that it can make on the shared storage: admit machines as joining, change states in
// their order, remove nodes permanently, and change the key and the settings of the whole cluster.
func CheckStep(from Node, now, next Table) error {
	switch {
	case next.Version != now.Version+1:
		return fmt.Errorf("table of nodes: version %d does not follow %d", next.Version, now.Version)
	case next.Cluster != now.Cluster || !next.follows(now.KeyHash):
		return fmt.Errorf("table of nodes: that of cluster %s (%.8s) is not ours", next.Cluster, next.KeyHash)
	}

	if err := next.keepsRemoved(now); err != nil {
		return err
	}

	if err := checkEntries(now, next); err != nil {
		return err
	}
	if from.Serves() {
		return nil
	}

	return checkOwnOnly(from, now, next)
}

// Serves reports whether the node serves minions: it is not an arbiter, and has joined.
func (n *Node) Serves() bool {
	return !n.IsArbiter() && slices.Contains([]State{Member, Draining, Leaving}, n.State)
}

// keepsRemoved returns an error if the table contains again a node that was removed in the table
// before.
func (t *Table) keepsRemoved(before Table) error {
	for _, n := range t.Nodes {
		if n.State != Removed && before.WasRemoved(n.Certificate) {
			return fmt.Errorf("table of nodes: %s was removed and cannot come back", n.Name)
		}
	}
	return nil
}

// checkEntries returns an error if the entries of next may not follow those of now.
func checkEntries(now, next Table) error {
	for _, was := range now.Nodes {
		is, ok := next.ByCertificate(was.Certificate)
		switch {
		case !ok && was.State == Removed && slices.Contains(next.Gone, was.Certificate):
			continue // another machine has the name of the removed node
		case !ok:
			return fmt.Errorf("table of nodes: %s is missing", was.Name)
		case is.Name != was.Name || is.Address != was.Address || is.IsArbiter() != was.IsArbiter():
			return fmt.Errorf("table of nodes: %s has become another node", was.Name)
		case is.State != was.State && !slices.Contains(after[was.State], is.State):
			return fmt.Errorf("table of nodes: %s is %s and cannot become %s", was.Name, was.State, is.State)
		}
	}

	for _, is := range next.Nodes {
		if _, ok := now.ByCertificate(is.Certificate); !ok && is.State != Joining {
			return fmt.Errorf("table of nodes: %s is new and %s already", is.Name, is.State)
		}
	}

	return nil
}

var errNotYours = errors.New("table of nodes: an arbiter, and who has not joined yet, may change their own entry only")

// checkOwnOnly returns an error if next differs from now in more than a node that does not serve
// may change.
func checkOwnOnly(from Node, now, next Table) error {
	was, is := now.Clone(), next.Clone()
	is.Version = was.Version

	// It may change its own entry.
	for i := range is.Nodes {
		n := &is.Nodes[i]
		if n.Certificate != from.Certificate {
			continue
		}
		before, _ := was.ByCertificate(n.Certificate)
		n.State, n.Brick = before.State, before.Brick
	}

	// It may change the turn, if no node or it itself has it.
	free := was.Turn == nil || was.Turn.Node == from.Name
	taken := is.Turn == nil || is.Turn.Node == from.Name && !is.Turn.Key
	if free && taken {
		was.Turn, is.Turn = nil, nil
	}

	before, err := encode(was)
	if err != nil {
		return err
	}

	rest, err := encode(is)
	if err != nil {
		return err
	}
	if !bytes.Equal(before, rest) {
		return errNotYours
	}

	return nil
}
