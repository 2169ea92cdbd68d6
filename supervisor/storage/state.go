package storage

import (
	"slices"
	"strings"
	"time"

	"saltern/supervisor/status"
)

// State describes the storage of this node at one moment. The value is a copy that does not change
// afterwards.
type State struct {
	At time.Time `json:"at"` // time of the newest observation; zero: none yet
	// Ready reports whether the volume is mounted here and takes writes, its directories
	// exist, and the files for minions have been copied to this node once.
	Ready bool `json:"ready"`
	// Waiting is the reason why Ready is false. It is empty if Ready is true.
	Waiting string `json:"waiting,omitempty"`
	// Leads reports whether this node makes the changes of the pool. Leader names the node that
	// makes them, or is empty if that is not known.
	Leads  bool   `json:"leads"`
	Leader string `json:"leader,omitempty"`
	// Doing is the step that this node is making, or "".
	Doing string `json:"doing,omitempty"`
	// Plan describes the steps that remain and the warnings. It may be empty.
	Plan string `json:"plan,omitempty"`
	// Done reports whether the pool is as the table requires.
	Done bool `json:"done"`

	Problems []status.Finding `json:"problems,omitempty"`

	Bricks []Brick `json:"bricks,omitempty"`
	// Spare is how many more bricks may be lost before the volume stops. It is -1 if the volume has
	// stopped, or if the number is not known.
	Spare int   `json:"spare"`
	Heal  Heal  `json:"heal"`
	Space Space `json:"space"`
	Mount Mount `json:"mount"`
	// Members are the nodes of the table as the pool sees them.
	Members []Member `json:"members,omitempty"`
}

// Brick is one copy of the data.
type Brick struct {
	Name    string `json:"name"` // HOST:/PATH of the brick
	Node    string `json:"node"` // name of the node in the table; empty: no node in the table has this brick
	Arbiter bool   `json:"arbiter,omitempty"`
	Up      bool   `json:"up"`
	Known   bool   `json:"known"` // whether Up is known
	Total   uint64 `json:"totalBytes,omitempty"`
	Free    uint64 `json:"freeBytes,omitempty"`
}

// Heal counts the entries that still have to be healed between the copies.
type Heal struct {
	Pending    int  `json:"pending"`
	SplitBrain int  `json:"splitBrain"`
	Known      bool `json:"known"`
}

// Space is the size and use of the volume, as its mount reports them. All values are 0 if they are
// not known.
type Space struct {
	Total      uint64 `json:"totalBytes"`
	Free       uint64 `json:"freeBytes"`
	Inodes     uint64 `json:"inodes"`
	InodesFree uint64 `json:"inodesFree"`
}

// Mount describes the mount of this node.
type Mount struct {
	State    string        `json:"state"` // a mount.State; empty: not checked yet
	Text     string        `json:"text,omitempty"`
	Writable bool          `json:"writable"`
	Latency  time.Duration `json:"latency,omitempty"`
}

// Member is one node of the table.
type Member struct {
	Name      string `json:"name"`
	InPool    bool   `json:"inPool"`
	Connected bool   `json:"connected"`
	Reachable bool   `json:"reachable"` // whether the port of its glusterd answers
}

// LetGo reports whether the pool has finished the removal of a node. Before that, the pool would
// confuse a new machine of the same name with the old node.
func (s *State) LetGo(node string) bool { return !s.Holds(node) && s.Done }

// Holds reports whether the volume has a copy on that node.
func (s *State) Holds(node string) bool {
	return slices.ContainsFunc(s.Bricks, func(b Brick) bool {
		host, _, _ := strings.Cut(b.Name, ":")
		return host == node
	})
}
