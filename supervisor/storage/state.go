package storage

import (
	"slices"
	"strings"
	"time"

	"saltern/supervisor/status"
)

// State is how the storage of this node is. It is a copy: nobody changes it
// afterwards.
type State struct {
	At time.Time `json:"at"` // of the newest observation; zero before the first
	// Ready: the volume is mounted here and takes writes, its directories are
	// made, and the files for minions have been copied to this node once.
	Ready bool `json:"ready"`
	// Waiting says in words what Ready waits for; empty when it is.
	Waiting string `json:"waiting,omitempty"`
	// Leads reports whether this node makes the changes of the pool, Leader which
	// node does as far as is known.
	Leads  bool   `json:"leads"`
	Leader string `json:"leader,omitempty"`
	// Doing is the step that is being made by this node; empty: none.
	Doing string `json:"doing,omitempty"`
	// Plan is what would still be done, as text; empty: nothing.
	Plan string `json:"plan,omitempty"`
	// Done tells that the pool is as the table wants it.
	Done bool `json:"done"`

	Problems []status.Finding `json:"problems,omitempty"`

	Bricks []Brick `json:"bricks,omitempty"`
	// Spare is how many more bricks may be lost before the volume stops; -1:
	// it has stopped, or it is not known.
	Spare int   `json:"spare"`
	Heal  Heal  `json:"heal"`
	Space Space `json:"space"`
	Mount Mount `json:"mount"`
	// Members are the nodes of the table as the pool sees them.
	Members []Member `json:"members,omitempty"`
}

// Brick is one copy of the data.
type Brick struct {
	Name    string `json:"name"` // host:/path
	Node    string `json:"node"` // of the table; empty: of none
	Arbiter bool   `json:"arbiter,omitempty"`
	Up      bool   `json:"up"`
	Known   bool   `json:"known"` // whether Up was learned
	Total   uint64 `json:"totalBytes,omitempty"`
	Free    uint64 `json:"freeBytes,omitempty"`
}

// Heal is what copies still have to give each other.
type Heal struct {
	Pending    int  `json:"pending"`
	SplitBrain int  `json:"splitBrain"`
	Known      bool `json:"known"`
}

// Space of the volume as its mount tells it; all 0 when that is not known.
type Space struct {
	Total      uint64 `json:"totalBytes"`
	Free       uint64 `json:"freeBytes"`
	Inodes     uint64 `json:"inodes"`
	InodesFree uint64 `json:"inodesFree"`
}

// Mount of this node.
type Mount struct {
	State    string        `json:"state"` // see mount.State; empty: not looked at yet
	Text     string        `json:"text,omitempty"`
	Writable bool          `json:"writable"`
	Latency  time.Duration `json:"latency,omitempty"`
}

// Member is one node of the table.
type Member struct {
	Name      string `json:"name"`
	InPool    bool   `json:"inPool"`
	Connected bool   `json:"connected"`
	Reachable bool   `json:"reachable"` // its glusterd's port answers
}

// LetGo reports whether the pool is done with a node that was removed: a machine
// of the same name would be taken for it earlier.
func (s *State) LetGo(node string) bool { return !s.Holds(node) && s.Done }

// Holds reports whether the volume counts on a copy on that node.
func (s *State) Holds(node string) bool {
	return slices.ContainsFunc(s.Bricks, func(b Brick) bool {
		host, _, _ := strings.Cut(b.Name, ":")
		return host == node
	})
}
