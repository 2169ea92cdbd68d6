package nodes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"

	"saltern/internal/control"
)

// Bounds of a table. They are numbers of entries unless the comment says otherwise.
const (
	MaxNodes = 64
	// MaxTable is the largest size of a table as JSON, in bytes.
	MaxTable = 256 << 10
	maxGone  = 1024
	// maxKeys is the largest number of keys that a cluster may have had, one after another.
	maxKeys = 64
)

var hashForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Parse parses a table and checks it.
func Parse(b []byte) (t Table, err error) {
	if len(b) > MaxTable {
		return t, fmt.Errorf("table of nodes: larger than %d bytes", MaxTable)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&t); err != nil {
		return Table{}, fmt.Errorf("table of nodes: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Table{}, errors.New("table of nodes: something follows it")
	}
	return t, t.Check()
}

// Check returns an error if a table is not valid.
func (t *Table) Check() error {
	switch {
	case t.Version == 0:
		return errors.New("table of nodes: it has no version")
	case !control.PlainName(t.Cluster):
		return fmt.Errorf("table of nodes: cluster %.70q is not a plain name", t.Cluster)
	case !hashForm.MatchString(t.KeyHash):
		return errors.New("table of nodes: keyHash is not a SHA-256")
	case len(t.Former) > maxKeys || slices.ContainsFunc(t.Former,
		func(h string) bool { return !hashForm.MatchString(h) }):
		return fmt.Errorf("table of nodes: the earlier keys are more than %d, or no SHA-256", maxKeys)
	case len(t.Gone) > maxGone:
		return fmt.Errorf("table of nodes: %d removed ones are remembered, at most %d", len(t.Gone), maxGone)
	case t.Turn != nil && (!control.PlainName(t.Turn.Node) || len(t.Turn.Life) > 64):
		return errors.New("table of nodes: the turn belongs to no name")
	case len(t.Nodes) == 0 || len(t.Nodes) > MaxNodes:
		return fmt.Errorf("table of nodes: %d nodes, 1 to %d are possible", len(t.Nodes), MaxNodes)
	}

	names, addresses := map[string]bool{}, map[string]bool{}
	for _, n := range t.Nodes {
		if err := n.Check(); err != nil {
			return fmt.Errorf("table of nodes: %w", err)
		}
		if names[n.Name] {
			return fmt.Errorf("table of nodes: %s is there twice", n.Name)
		}

		names[n.Name] = true
		if n.State == Removed {
			continue
		}
		if addresses[n.Address] {
			return fmt.Errorf("table of nodes: %s belongs to two nodes", n.Address)
		}

		addresses[n.Address] = true
	}

	return t.checkVirtual(addresses)
}

func (t *Table) checkVirtual(taken map[string]bool) error {
	if t.Virtual == "" {
		return nil
	}
	if a, err := netip.ParseAddr(t.Virtual); err != nil || a.Zone() != "" || !a.IsGlobalUnicast() ||
		a.String() != t.Virtual {
		return fmt.Errorf("table of nodes: virtual address: %.60q is not an IP address", t.Virtual)
	}
	if taken[t.Virtual] {
		return fmt.Errorf("table of nodes: the virtual address %s is that of a node", t.Virtual)
	}
	return nil
}

// Check returns an error if a node's entry is not valid.
func (n *Node) Check() error {
	if !control.PlainName(n.Name) {
		return fmt.Errorf("node %.70q: the name is not a host name", n.Name)
	}

	if a, err := netip.ParseAddr(n.Address); err != nil || a.Zone() != "" || a.IsUnspecified() ||
		a.IsMulticast() || a.String() != n.Address {
		return fmt.Errorf("node %s: %.60q is not an IP address", n.Name, n.Address)
	}
	if !slices.Contains([]State{Joining, Member, Draining, Leaving, Removed}, n.State) {
		return fmt.Errorf("node %s: state %.20q is not known", n.Name, n.State)
	}
	if !hashForm.MatchString(n.Certificate) {
		return fmt.Errorf("node %s: the hash of its certificate is not a SHA-256", n.Name)
	}
	if len(n.Front) > 16 || len(n.Brick) > 4096 || len(n.Storage) > 16 {
		return fmt.Errorf("node %s: too much is said about it", n.Name)
	}

	for _, f := range n.Front {
		if _, err := netip.ParseAddr(f); err != nil {
			return fmt.Errorf("node %s: %.60q is not an IP address", n.Name, f)
		}
	}

	return nil
}

// Clone returns a deep copy.
func (t *Table) Clone() Table {
	c := *t
	c.Nodes = slices.Clone(t.Nodes)
	c.Gone = slices.Clone(t.Gone)
	c.Former = slices.Clone(t.Former)
	if t.Turn != nil {
		turn := *t.Turn
		c.Turn = &turn
	}
	for i := range c.Nodes {
		c.Nodes[i].Front = slices.Clone(c.Nodes[i].Front)
	}
	return c
}

// ByCertificate returns the node with that certificate hash, in any state, or false if there is
// none.
func (t *Table) ByCertificate(hash string) (Node, bool) {
	for _, n := range t.Nodes {
		if n.Certificate == hash {
			return n, true
		}
	}
	return Node{}, false
}

// WasRemoved reports whether the node with that certificate hash was removed.
func (t *Table) WasRemoved(hash string) bool {
	n, ok := t.ByCertificate(hash)
	return ok && n.State == Removed || slices.Contains(t.Gone, hash)
}

// Present returns the nodes that belong to the cluster: all but the removed ones.
func (t *Table) Present() (out []Node) {
	for _, n := range t.Nodes {
		if n.State != Removed {
			out = append(out, n)
		}
	}
	return out
}

// Peers returns the present nodes except the one named self.
func (t *Table) Peers(self string) []Node {
	return slices.DeleteFunc(t.Present(), func(n Node) bool { return n.Name == self })
}

// after lists the states that may follow each state. No state follows Removed: so a node that
// decides by an older table cannot bring a removed node back.
var after = map[State][]State{
	Joining:  {Member, Leaving, Removed},
	Member:   {Draining, Leaving, Removed},
	Draining: {Member, Leaving, Removed},
	Leaving:  {Removed},
}

// Set changes the state of a node. It returns an error if there is no such node, or if the new
// state may not follow the present one.
func (t *Table) Set(name string, s State) error {
	for i := range t.Nodes {
		n := &t.Nodes[i]
		switch {
		case n.Name != name:
			continue
		case n.State != s && !slices.Contains(after[n.State], s):
			return fmt.Errorf("%s is %s and cannot become %s", name, n.State, s)
		}
		n.State = s
		return nil
	}
	return fmt.Errorf("there is no node %s", name)
}

// Remove permanently removes the node with that certificate hash. If the node is removed already,
// Remove changes nothing, even if another machine has taken over its name.
func (t *Table) Remove(certificate string) error {
	if n, ok := t.ByCertificate(certificate); ok {
		return t.Set(n.Name, Removed)
	}
	if !slices.Contains(t.Gone, certificate) {
		return errors.New("the machine is not in the table of nodes")
	}
	return nil
}

// Put adds a node, or replaces the one with the same name.
func (t *Table) Put(n Node) {
	for i := range t.Nodes {
		if t.Nodes[i].Name == n.Name {
			t.Nodes[i] = n
			return
		}
	}
	t.Nodes = append(t.Nodes, n)
}

// Errors of [Admit].
var (
	ErrTaken   = errors.New("is taken")
	ErrRemoved = errors.New("was removed")
	ErrCopied  = errors.New("was copied from it, or had that name and address itself")
	ErrArbiter = errors.New("has an arbiter already")
)

// Admit adds a joining machine to the table. If the machine's key is in the table, Admit changes
// nothing; for the key of a removed node it always returns an error. A new machine may have the
// name of a removed node.
func Admit(t *Table, n Node) error {
	if slices.Contains(t.Gone, n.Certificate) {
		return fmt.Errorf("this machine %w from the cluster; set it up again to join", ErrRemoved)
	}

	for _, o := range t.Nodes {
		switch {
		case o.Certificate == n.Certificate && o.State == Removed:
			return fmt.Errorf("%s %w from the cluster; set the machine up again to let it join", o.Name, ErrRemoved)
		case o.Certificate == n.Certificate && o.Name == n.Name && o.Address == n.Address:
			return nil
		case o.Certificate == n.Certificate:
			return fmt.Errorf("this machine has the key of node %s at %s: it %w", o.Name, o.Address, ErrCopied)
		case o.State == Removed:
		case o.Name == n.Name:
			return fmt.Errorf("name %s %w by the node at %s", n.Name, ErrTaken, o.Address)
		case o.Address == n.Address:
			return fmt.Errorf("address %s %w by node %s", n.Address, ErrTaken, o.Name)
		}
	}

	if n.Address == t.Virtual {
		return fmt.Errorf("address %s %w: it is the cluster's virtual address", n.Address, ErrTaken)
	}

	if o, ok := t.Arbiter(); ok && n.IsArbiter() {
		return fmt.Errorf("the cluster %w, node %s at %s; to put another machine in its place take that one out "+
			"first: applianced leave there, or applianced remove %s",
			ErrArbiter, o.Name, o.Address, o.Name)
	}
	if len(t.Present()) >= MaxNodes {
		return fmt.Errorf("every place %w: the cluster has %d nodes; that is the most", ErrTaken, MaxNodes)
	}

	if o, ok := t.Find(n.Name); ok { // a removed node had this name: record its certificate in Gone
		t.Gone = append(t.Gone, o.Certificate)
		t.Gone = t.Gone[max(0, len(t.Gone)-maxGone):]
	}

	t.Put(n)
	return nil
}
