package status

// ServingRank returns the rank of this node among the nodes that serve, in the order of their
// names, counted from 0, and the total of those nodes. ready reports whether this node serves.
func (d Document) ServingRank() (rank, total int, ready bool) {
	for _, n := range d.Nodes {
		if n.State != "ready" {
			continue
		}
		total++
		if n.This {
			ready = true
		} else if n.Name < d.Node {
			rank++
		}
	}
	return rank, total, ready
}
