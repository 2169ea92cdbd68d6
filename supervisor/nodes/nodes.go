// Package nodes is the table of a cluster's machines: their names, addresses and keys, and their
// parts in the shared volume. Every node keeps a copy of the table on its own disk, so that it
// knows its peers before the volume is mounted. Any node can change the table on the shared
// storage, by compare and swap (package versioned). A copy is replaced only by a table with a
// higher Version.
//
// The load balancer's backends, the master's peers, the firewall's sets, the storage's members and
// the status's list of nodes all come from this table.
package nodes

import (
	"slices"
	"time"
)

// State is a node's state in the cluster, as administrators have decided it. Whether the node works
// at the moment is in the status.
type State string

// Values of State.
const (
	Joining  State = "joining"  // admitted, not yet serving
	Member   State = "member"   // serves
	Draining State = "draining" // keeps its connections, gets no new ones
	Leaving  State = "leaving"  // frees its copy of the data, then leaves
	Removed  State = "removed"  // no longer accepted; the entry stays so that the node can learn of its removal
)

// Node is one machine.
type Node struct {
	// Name is the node's name everywhere: master id, peer, brick host, status.
	Name string `json:"name"`
	// Address is the node's IP address on the network of the cluster.
	Address string `json:"address"`
	State   State  `json:"state"`
	// Certificate is the SHA-256 of the public key (SubjectPublicKeyInfo) in the node's certificate
	// for the node API, in hexadecimal. Connections to and from the node are pinned to it.
	Certificate string `json:"certificate"`
	// Storage is data, arbiter or client; see glusterctl.Role.
	Storage string `json:"storage"`
	// Brick is the directory of the node's copy of the volume. It is empty for a client.
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

// Table is the table of nodes, with what the nodes have in common.
type Table struct {
	Version uint64 `json:"version"`
	Cluster string `json:"cluster"`
	// KeyHash is the SHA-256 of the cluster's public key in hexadecimal. A join string contains it,
	// so that a joining machine can authenticate the cluster.
	KeyHash string `json:"keyHash"`
	// Former lists the hashes of the cluster's earlier keys, the oldest first. A node that was
	// unreachable during a change of the key recognises its cluster by these hashes.
	Former []string `json:"former,omitempty"`
	// Virtual is the cluster's virtual address, which moves between nodes. It is empty if there is
	// none.
	Virtual string `json:"virtual,omitempty"`
	// StorageTLS reports whether connections of the shared volume use TLS. The first node decides
	// that when it forms the cluster.
	StorageTLS bool `json:"storageTLS,omitempty"`
	// Turn names the one node that is allowed to be out of service. It is nil if no node is.
	Turn  *Turn  `json:"turn,omitempty"`
	Nodes []Node `json:"nodes"`
	// Gone lists the certificates of removed nodes whose names other nodes have now.
	Gone []string `json:"gone,omitempty"`
}

// Arbiter returns the arbiter of the cluster, or false if there is none.
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

// Find returns the node with that name, in any state, or false if there is none.
func (t *Table) Find(name string) (Node, bool) {
	for _, n := range t.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}
