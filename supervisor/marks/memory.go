package marks

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// maxNodes is the largest number of nodes in a memory: all nodes of a table, and as many nodes that
// have left the cluster.
const maxNodes = 128

// Memory holds the histories of the places of all nodes, by the hash of the nodes' certificates.
type Memory map[string]map[Place]History

var certificateHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Check returns an error if a memory from another node is malformed or beyond the bounds.
func (m Memory) Check() error {
	if len(m) > maxNodes {
		return fmt.Errorf("marks: %d nodes, at most %d", len(m), maxNodes)
	}

	for id, places := range m {
		if !certificateHash.MatchString(id) {
			return errors.New("marks: a node without the hash of its certificate")
		}

		for place, h := range places {
			if place != Data && place != Bricks {
				return fmt.Errorf("marks: place %.20q is not known", place)
			}
			if err := h.Check(); err != nil {
				return err
			}
		}
	}

	return nil
}

// Of returns the remembered history of a place of a node.
func (m Memory) Of(certificate string, place Place) History { return m[certificate][place] }

// Note adds a history of a node's place, and reports whether it contained something new.
func (m Memory) Note(certificate string, place Place, h History) bool {
	old := m.Of(certificate, place)
	merged := old.Merge(h)
	if isSame(old, merged) {
		return false
	}
	if m[certificate] == nil {
		m[certificate] = map[Place]History{}
	}
	m[certificate][place] = merged
	return true
}

// Merge adds what another node remembers, and reports whether other contained something new.
func (m Memory) Merge(other Memory) bool {
	grown := false
	for certificate, places := range other {
		for place, h := range places {
			grown = m.Note(certificate, place, h) || grown
		}
	}
	return grown
}

// Keep forgets the nodes that are not among certificates.
func (m Memory) Keep(certificates []string) {
	maps.DeleteFunc(m, func(id string, _ map[Place]History) bool { return !slices.Contains(certificates, id) })
}

// Clone returns a copy.
func (m Memory) Clone() Memory {
	out := make(Memory, len(m))
	for id, places := range m {
		out[id] = maps.Clone(places)
	}
	return out
}

func isSame(a, b History) bool {
	return a.Generation == b.Generation && slices.Equal(a.Starts, b.Starts) && a.At.Equal(b.At)
}
