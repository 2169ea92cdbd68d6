// Package nodes is the table of a cluster's machines: who they are, how they
// are reached and proven, and what they bring to the shared volume. Every
// node keeps a copy on its own disk, so that it knows its peers before the
// volume is mounted. Any node changes it, on the shared storage, by compare and
// swap (package versioned); a copy is replaced only by one with a higher Version.
//
// The load balancer's backends, the master's peers, the firewall's sets, the
// storage's members and the status's list of nodes all come from this table.
package nodes

import (
	"slices"
	"time"
)

// State says what a node is to the cluster, as decided by people; how it does
// at the moment is the status's business.
type State string

// The states.
const (
	Joining  State = "joining"  // admitted, not yet serving
	Member   State = "member"   // serves
	Draining State = "draining" // serves whoever is connected, is given nobody new
	Leaving  State = "leaving"  // gives up its copy of the data, then goes
	Removed  State = "removed"  // refused from now on; kept so that it can be told so
)

// Node is one machine.
type Node struct {
	// Name is the identity everywhere: master id, peer, brick host, status.
	Name string `json:"name"`
	// Address is its IP address on the network of the cluster.
	Address string `json:"address"`
	State   State  `json:"state"`
	// Certificate is the SHA-256 of its node API certificate's public key
	// (SubjectPublicKeyInfo), in hexadecimal: connections to and from it are
	// pinned to that.
	Certificate string `json:"certificate"`
	// Storage is data, arbiter or client; see glusterctl.Role.
	Storage string `json:"storage"`
	// Brick is the directory of its copy; empty for a client.
	Brick string `json:"brick,omitempty"`
	// Front are the addresses minions use there.
	Front  []string  `json:"front,omitempty"`
	Joined time.Time `json:"joined"`
}

// ArbiterStorage is Storage of the node that decides between two copies: it
// keeps the names of files only, and runs no master and no load balancer.
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
	// Former are the hashes of the cluster's keys of before, the first one first. By them
	// a node that was away while the key became another knows its cluster.
	Former []string `json:"former,omitempty"`
	// Virtual is the address that moves between nodes; empty: none.
	Virtual string `json:"virtual,omitempty"`
	// StorageTLS tells that connections of the shared volume use TLS; decided
	// when the cluster is formed.
	StorageTLS bool `json:"storageTLS,omitempty"`
	// Turn says which node may be away; nil: none.
	Turn  *Turn  `json:"turn,omitempty"`
	Nodes []Node `json:"nodes"`
	// Gone are the certificates of removed nodes whose names others have now.
	Gone []string `json:"gone,omitempty"`
}

// Arbiter gives the arbiter of the cluster, if it has one.
func (t *Table) Arbiter() (Node, bool) {
	for _, n := range t.Nodes {
		if n.State != Removed && n.IsArbiter() {
			return n, true
		}
	}
	return Node{}, false
}

// Serving are the present nodes that serve minions: all but an arbiter.
func (t *Table) Serving() []Node {
	return slices.DeleteFunc(t.Present(), func(n Node) bool { return n.IsArbiter() })
}

// Find gives the node of that name.
func (t *Table) Find(name string) (Node, bool) {
	for _, n := range t.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}
