package api

import (
	"io"
	"net/http"
	"time"

	"saltern/internal/control/toolrun"
	"saltern/internal/rpc"
	"saltern/supervisor/history"
	"saltern/supervisor/nodes"
	"saltern/supervisor/setup"
)

// ConfigText is the text of the configuration file.
type ConfigText struct {
	Text string `json:"text"`
}

// OutputRequest names a service and how many lines of its output are wanted.
type OutputRequest struct {
	Service string
	Lines   int
}

// OutputLines are the last lines that a service wrote.
type OutputLines struct {
	Lines []string `json:"lines"`
}

// LogPage is a part of what a service wrote. Each line begins with its time in UTC.
type LogPage struct {
	Lines  []string `json:"lines"`
	Cursor string   `json:"cursor"` // where the next page begins
	More   bool     `json:"more"`   // the next page has lines already
}

// LogQuery says where a page begins: at a Cursor, else at a time, else so many lines before
// the end.
type LogQuery struct {
	Cursor string
	Since  time.Time
	Last   int
}

// LogRequest asks for a page of the log of a service.
type LogRequest struct {
	Service string
	LogQuery
}

// EventList lists the events that one node saw, the oldest first.
type EventList struct {
	Events []history.Event `json:"events"`
}

// ClusterRequest asks for a change of the cluster. The row of a method says which fields
// count.
type ClusterRequest struct {
	Node  string `json:"node"`
	End   bool   `json:"end,omitempty"`
	Force bool   `json:"force,omitempty"`
	Key   string `json:"key,omitempty"` // hash of a key
}

// JoinLine is the line with which another node joins. It is a secret.
type JoinLine struct {
	JoinString string `json:"joinString"`
}

// Rotated names the nodes that do not have the new secret yet.
type Rotated struct {
	Without []string `json:"without"`
}

// ClusterKeys are the public halves of the key by which minions know the cluster.
type ClusterKeys struct {
	Key  ClusterKey  `json:"key"`
	Next *ClusterKey `json:"next,omitempty"` // nil: none lies beside it
}

// ClusterKey is the public half of a key.
type ClusterKey struct {
	Hash   string `json:"hash"`   // as in the table of nodes
	Finger string `json:"finger"` // as in master_finger of a minion
	Path   string `json:"path"`   // of the file, as minions keep it in minion_master.pub
}

// Recovering says how far a node is on its way to a cluster of its own.
type Recovering struct {
	Stage string `json:"stage"`           // copy, switch or masters; empty: nothing is under way
	Fault string `json:"fault,omitempty"` // why the last try failed
}

// VirtualRequest gives the cluster another virtual address; empty: none.
type VirtualRequest struct {
	Address string `json:"address"`
}

// Turn says where the cluster stands with restarts. Machines of a cluster are away one at a
// time.
type Turn struct {
	// Alone: the node has no cluster, and needs to ask nobody.
	Alone bool        `json:"alone,omitempty"`
	Now   *nodes.Turn `json:"now,omitempty"` // nil: nobody has it
	Mine  bool        `json:"mine"`          // this node has it, and took it in this life
	// Needed says why the cluster cannot do without this node now; empty: it can.
	Needed string `json:"needed,omitempty"`
	// Sessions are connections for jobs that this node's master still has.
	Sessions int `json:"sessions"`
}

// ApplyRequest says how all nodes take new options.
type ApplyRequest struct {
	Dry   bool          `json:"dry,omitempty"`   // only check
	Force bool          `json:"force,omitempty"` // without nodes that are away
	Limit time.Duration `json:"limit"`           // for a master to serve, in nanoseconds
}

// UpgradeRequest says which version all nodes take.
type UpgradeRequest struct {
	Path string `json:"path"`          // of the bundle, on this node
	Dry  bool   `json:"dry,omitempty"` // only check
}

// MinionsRequest asks for the minions of all nodes.
type MinionsRequest struct {
	Finger bool // with the fingerprints of their keys
}

// KeyChange is a change of keys, by their full names.
type KeyChange struct {
	Verb string   `json:"verb"` // accept, reject or delete
	IDs  []string `json:"ids"`  // at most MaxKeys
	// State and Finger leave all other keys of these names alone; empty: any.
	State  string `json:"state,omitempty"` // with delete: accepted, pending, rejected or denied
	Finger string `json:"finger,omitempty"`
}

// MaxKeys bounds the keys of one change.
const MaxKeys = 1000

// GitRequest names a git remote by its URL or name; empty: all.
type GitRequest struct {
	Remote string `json:"remote"`
}

// ToolAnswer is the answer of a tool that the node of that name runs: its frames.
func ToolAnswer(node string, frames io.ReadCloser) rpc.Stream {
	return rpc.Stream{
		Header: http.Header{http.CanonicalHeaderKey(toolrun.AskedHeader): {node}},
		Body:   frames,
		Stall:  toolrun.Stall,
	}
}

// ResetPlan lists all that a reset would remove and keep.
type ResetPlan struct {
	Remove []string `json:"remove"` // paths
	Keep   []string `json:"keep"`   // "PATH: what it is"
	// Cluster is its name, Others the nodes that would go on without this one.
	Cluster string   `json:"cluster,omitempty"`
	Others  []string `json:"others,omitempty"`
	// Copied says why this machine may not act for the node whose key it has; "": it may. The
	// node goes on whatever becomes of this machine, and Others is empty.
	Copied string `json:"copied,omitempty"`
}

// Resetting is how far a reset is.
type Resetting struct {
	UnderWay bool   `json:"underWay"`
	Fault    string `json:"fault,omitempty"` // why it has stopped
}

// NetworkRequest is a step of a trial of a network configuration.
type NetworkRequest struct {
	Action  string        `json:"action"` // try, look, confirm or revert
	Network setup.Network `json:"network"`
}
