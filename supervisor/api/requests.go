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

// OutputRequest names a service and the number of lines wanted.
type OutputRequest struct {
	Service string
	Lines   int
}

// OutputLines are the last lines that a service wrote.
type OutputLines struct {
	Lines []string `json:"lines"`
}

// LogPage is a part of a service's log. Each line begins with its time in UTC.
type LogPage struct {
	Lines  []string `json:"lines"`
	Cursor string   `json:"cursor"` // LogQuery.Cursor of the next page
	More   bool     `json:"more"`   // whether the next page has lines already
}

// LogQuery selects where a page of a log begins: at Cursor if that is set, otherwise at the time
// Since if that is set, otherwise Last lines before the end.
type LogQuery struct {
	Cursor string
	Since  time.Time
	Last   int
}

// LogRequest is a request for a page of the log of a service.
type LogRequest struct {
	Service string
	LogQuery
}

// EventList lists the events that one node saw, the oldest first.
type EventList struct {
	Events []history.Event `json:"events"`
}

// ClusterRequest requests a change of the cluster. The comment of each method says which fields the
// method uses.
type ClusterRequest struct {
	Node  string `json:"node"`
	End   bool   `json:"end,omitempty"`
	Force bool   `json:"force,omitempty"`
	Key   string `json:"key,omitempty"` // hash of a key, as in the table of nodes
}

// JoinLine holds the join string, with which another node joins. It is a secret.
type JoinLine struct {
	JoinString string `json:"joinString"`
}

// Rotated names the nodes that do not have the new secret yet.
type Rotated struct {
	Without []string `json:"without"`
}

// ClusterKeys holds the public halves of the keys by which minions know the cluster.
type ClusterKeys struct {
	Key  ClusterKey  `json:"key"`
	Next *ClusterKey `json:"next,omitempty"` // the prepared key; nil: there is none
}

// ClusterKey describes the public half of a key.
type ClusterKey struct {
	Hash   string `json:"hash"`   // hash of the public key, as in the table of nodes
	Finger string `json:"finger"` // fingerprint, as in a minion's option master_finger
	Path   string `json:"path"`   // path of the file, which minions keep as minion_master.pub
}

// Recovering is the progress of a recovery, which makes this node a new cluster.
type Recovering struct {
	Stage string `json:"stage"`           // copy, switch or masters; empty: no recovery is under way
	Fault string `json:"fault,omitempty"` // why the last try failed
}

// VirtualRequest names the cluster's new virtual address. An empty address removes the present one.
// A request without the field is refused.
type VirtualRequest struct {
	Address *string `json:"address"`
}

// Check returns an error if the request names no address, not even an empty one.
func (q VirtualRequest) Check() error {
	if q.Address == nil {
		return &rpc.Error{Code: rpc.CodeBadRequest, Text: `address is missing; "" removes the virtual address`}
	}
	return nil
}

// Turn says which node has the turn: the permission to be out of service for a restart. One node at
// a time has the turn.
type Turn struct {
	// Alone reports whether the node has no cluster, and so needs no turn before a restart.
	Alone bool        `json:"alone,omitempty"`
	Now   *nodes.Turn `json:"now,omitempty"` // nil: no node has the turn
	Mine  bool        `json:"mine"`          // this node has the turn, and took it in this life
	// Needed is the reason why the cluster needs this node now. It is empty if the cluster can do
	// without the node.
	Needed string `json:"needed,omitempty"`
	// Sessions is the number of minions' connections for jobs that this node's master still has.
	Sessions int `json:"sessions"`
}

// ApplyRequest configures a rolling change of the options of all nodes.
type ApplyRequest struct {
	Dry   bool          `json:"dry,omitempty"`   // only check the options, change nothing
	Force bool          `json:"force,omitempty"` // skip nodes that do not answer
	Limit time.Duration `json:"limit"`           // how long a master may take to serve, in nanoseconds
}

// UpgradeRequest names the version for all nodes.
type UpgradeRequest struct {
	Path string `json:"path"`          // path of the bundle on this node
	Dry  bool   `json:"dry,omitempty"` // only check the bundle, install nothing
}

// MinionsRequest is a request for the minions of all nodes.
type MinionsRequest struct {
	Finger bool // include the fingerprints of the keys
}

// KeyChange is a change of keys. It names the keys in full, without patterns.
type KeyChange struct {
	Verb string   `json:"verb"` // accept, reject or delete
	IDs  []string `json:"ids"`  // names of keys, at most MaxKeys
	// State and Finger restrict the change to keys with that state and that fingerprint. An empty
	// field restricts nothing.
	State  string `json:"state,omitempty"` // with delete: accepted, pending, rejected or denied
	Finger string `json:"finger,omitempty"`
}

// MaxKeys bounds the keys of one change.
const MaxKeys = 1000

// GitRequest names a git remote by its URL or name. Empty: all remotes.
type GitRequest struct {
	Remote string `json:"remote"`
}

// ToolAnswer returns the answer of a method that runs a tool on another node: the tool's frames.
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
	Keep   []string `json:"keep"`   // paths, each with a description: "PATH: DESCRIPTION"
	// Cluster is the cluster's name, Others names the nodes that would continue without this node.
	Cluster string   `json:"cluster,omitempty"`
	Others  []string `json:"others,omitempty"`
	// Copied is the reason why this machine may not act for the node whose key it has. It is empty
	// if the machine may act. If it is not empty, another machine runs the node, whatever happens
	// to this machine, and Others is empty.
	Copied string `json:"copied,omitempty"`
}

// Resetting is the progress of a reset.
type Resetting struct {
	UnderWay bool   `json:"underWay"`
	Fault    string `json:"fault,omitempty"` // why the reset has stopped
}

// NetworkRequest asks to try, show, keep or revert a network configuration.
type NetworkRequest struct {
	Action  string        `json:"action"` // try, look, confirm or revert
	Network setup.Network `json:"network"`
}
