package status

// ServingRank returns the place of this node among the nodes that serve, in the order of their
// names, counted from 0, and the number of those nodes. ready reports whether this node serves.
func (d Document) ServingRank() (place, of int, ready bool) {
	for _, n := range d.Nodes {
		if n.State != "ready" {
			continue
		}
		of++
		if n.This {
			ready = true
		} else if n.Name < d.Node {
			place++
		}
	}
	return place, of, ready
}
