// Package nodes is the table of a cluster's machines: who they are, how they are reached and
// proven, and what they bring to the shared volume. Every node keeps a copy on its own disk, so
// that it knows its peers before the volume is mounted. Any node can change the table on the
// shared storage, by compare and swap (package versioned). A copy is replaced only by one with a
// higher Version.
//
// The load balancer's backends, the master's peers, the firewall's sets, the storage's members
// and the status's list of nodes all come from this table.
package nodes

import (
	"slices"
	"time"
)

// State is a node's place in the cluster, as decided by people. How the node works at the moment
// is up to the status.
type State string

// The states.
const (
	Joining  State = "joining"  // admitted, not yet serving
	Member   State = "member"   // serves
	Draining State = "draining" // serves its connections, gets no new ones
	Leaving  State = "leaving"  // gives up its copy of the data, then leaves
	Removed  State = "removed"  // refused from now on; kept so that the node can learn it
)

// Node is one machine.
type Node struct {
	// Name is the identity everywhere: master id, peer, brick host, status.
	Name string `json:"name"`
	// Address is its IP address on the network of the cluster.
	Address string `json:"address"`
	State   State  `json:"state"`
	// Certificate is the SHA-256 of the public key (SubjectPublicKeyInfo) of its node API
	// certificate, in hexadecimal. Connections to and from the node are pinned to it.
	Certificate string `json:"certificate"`
	// Storage is data, arbiter or client; see glusterctl.Role.
	Storage string `json:"storage"`
	// Brick is the directory of its copy. It is empty for a client.
	Brick string `json:"brick,omitempty"`
	// Front are the node's addresses for minions.
	Front  []string  `json:"front,omitempty"`
	Joined time.Time `json:"joined"`
}

// ArbiterStorage is the Storage of the node that decides between two copies. It keeps only the
// names of files, and runs no master and no load balancer.
const ArbiterStorage = "arbiter"

// IsArbiter reports whether n serves no minions and only decides between copies.
func (n *Node) IsArbiter() bool { return n.Storage == ArbiterStorage }

// Table is the whole list.
type Table struct {
	Version uint64 `json:"version"`
	Cluster string `json:"cluster"`
	// KeyHash is the SHA-256 of the cluster's public key in hexadecimal: the
	// part of a join string that proves the cluster.
	KeyHash string `json:"keyHash"`
	// Former are the hashes of the cluster's earlier keys, the first one first. A node that was
	// away while the key changed recognises its cluster by them.
	Former []string `json:"former,omitempty"`
	// Virtual is the address that moves between nodes. It is empty if there is none.
	Virtual string `json:"virtual,omitempty"`
	// StorageTLS reports whether connections of the shared volume use TLS. That is decided when
	// the cluster is formed.
	StorageTLS bool `json:"storageTLS,omitempty"`
	// Turn names the node that may be away. It is nil if there is none.
	Turn  *Turn  `json:"turn,omitempty"`
	Nodes []Node `json:"nodes"`
	// Gone are the certificates of removed nodes whose names others have now.
	Gone []string `json:"gone,omitempty"`
}

// Arbiter returns the arbiter of the cluster, if it has one.
func (t *Table) Arbiter() (Node, bool) {
	for _, n := range t.Nodes {
		if n.State != Removed && n.IsArbiter() {
			return n, true
		}
	}
	return Node{}, false
}

// Serving returns the present nodes that serve minions: all but an arbiter.
func (t *Table) Serving() []Node {
	return slices.DeleteFunc(t.Present(), func(n Node) bool { return n.IsArbiter() })
}

// Find returns the node of that name.
func (t *Table) Find(name string) (Node, bool) {
	for _, n := range t.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}
