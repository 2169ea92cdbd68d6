package status

// ServingRank returns the place of this node among those that serve, in order of their names,
// from 0, and their number. ready reports whether this node is one of them.
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
