package nodes

import "saltern/internal/control"

// Half is a half-done removal: the table of nodes and the masters' record disagree about whether
// the node was removed.
type Half struct {
	Node Node
	// Removal is the entry that the masters' record lacks. It is zero if the record has the removal
	// and the table lacks it.
	Removal control.Removal
	// Guess reports whether the record names only an address and no machine, as after salt-run
	// cluster.remove. A node acts on a guess only if it has been true for a while. Nothing is
	// guessed about a joining node, which may be a new machine at that address.
	Guess bool
}

// FindHalves returns the half-done removals: those that only the table of nodes has, or only the
// masters' record. The caller must read the record after the table, because a node is in the record
// before it becomes a member in the table.
func FindHalves(t Table, r control.Record) (out []Half) {
	buried := map[string]bool{} // removed nodes in the record; the map's key is the node's key in the table of nodes
	nameless := map[string]bool{}
	for _, m := range r.Removed {
		if m.Node != "" {
			buried[m.Node] = true
		} else {
			nameless[m.ID] = true
		}
	}

	present := map[string]bool{}
	for _, n := range t.Present() {
		present[n.Address] = true
	}

	for _, n := range t.Nodes {
		m, member := r.Member(n.Address)
		switch {
		case n.State == Removed:
			switch {
			case member && m.Own && !present[n.Address]:
				out = append(out,
					Half{
						Node:    n,
						Removal: control.Removal{ID: n.Address, Key: control.KeyFinger(m.Pub), Node: n.Certificate},
					})
			// the node had no master when it was removed, but it knew the secrets
			case !buried[n.Certificate] && !nameless[n.Address]:
				out = append(out,
					Half{Node: n, Removal: control.Removal{ID: n.Address, Key: control.NoMaster, Node: n.Certificate}})
			}
		case t.LastServing(n):
			// A cluster never removes its last node, whatever a record says.
		case buried[n.Certificate]:
			out = append(out, Half{Node: n})
		case nameless[n.Address] && !member && n.State != Joining && !n.IsArbiter():
			out = append(out, Half{Node: n, Guess: true})
		}
	}

	return out
}

// LastServing reports whether no node but n serves minions.
func (t *Table) LastServing(n Node) bool {
	all := t.Serving()
	return len(all) == 1 && all[0].Certificate == n.Certificate
}
