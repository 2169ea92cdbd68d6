package nodes

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// maxLeap is how far the version of an offered table may be ahead of a node's own version. A real
// node never misses that many changes. Without this limit an attacker could use up the version
// numbers.
const maxLeap = 1 << 32

// CheckStep returns nil if the node sender may replace the table current by the table next, else an
// error with the reason. next must have passed [Table.Check].
//
// Any node may change the state and the directory of the copy in its own entry. It may acquire the
// turn if no node has the turn, and release the turn if it has it. A node that serves
// ([Node.Serves]) may make every change that it can make on the shared storage: admit machines as
// joining, change states in their order, remove nodes permanently, and change the key and the
// settings of the whole cluster.
func CheckStep(sender Node, current, next Table) error {
	switch {
	case next.Version != current.Version+1:
		return fmt.Errorf("table of nodes: version %d does not follow %d", next.Version, current.Version)
	case next.Cluster != current.Cluster || !next.follows(current.KeyHash):
		return fmt.Errorf("table of nodes: that of cluster %s (%.8s) is not ours", next.Cluster, next.KeyHash)
	}

	if err := next.keepsRemoved(current); err != nil {
		return err
	}

	if err := checkEntries(current, next); err != nil {
		return err
	}
	if sender.Serves() {
		return nil
	}

	return checkOwnOnly(sender, current, next)
}

// Serves reports whether the node serves minions: it is not an arbiter, and has joined.
func (n *Node) Serves() bool {
	return !n.IsArbiter() && slices.Contains([]State{Member, Draining, Leaving}, n.State)
}

// keepsRemoved returns an error if the table contains a present node that was removed in the table
// previous.
func (t *Table) keepsRemoved(previous Table) error {
	for _, n := range t.Nodes {
		if n.State != Removed && previous.WasRemoved(n.Certificate) {
			return fmt.Errorf("table of nodes: %s was removed and cannot come back", n.Name)
		}
	}
	return nil
}

// checkEntries returns an error if the entries of next may not follow those of current.
func checkEntries(current, next Table) error {
	for _, was := range current.Nodes {
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
		if _, ok := current.ByCertificate(is.Certificate); !ok && is.State != Joining {
			return fmt.Errorf("table of nodes: %s is new and %s already", is.Name, is.State)
		}
	}

	return nil
}

var errNotYours = errors.New("table of nodes: an arbiter, and who has not joined yet, may change their own entry only")

// checkOwnOnly returns an error if next differs from current in anything that sender may not
// change, given that sender does not serve.
func checkOwnOnly(sender Node, current, next Table) error {
	was, is := current.Clone(), next.Clone()
	is.Version = was.Version

	// A node may change its own entry.
	for i := range is.Nodes {
		n := &is.Nodes[i]
		if n.Certificate != sender.Certificate {
			continue
		}
		before, _ := was.ByCertificate(n.Certificate)
		n.State, n.Brick = before.State, before.Brick
	}

	// A node may acquire a free turn, and release its own.
	free := was.Turn == nil || was.Turn.Node == sender.Name
	taken := is.Turn == nil || is.Turn.Node == sender.Name && !is.Turn.Key
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
