package cli

// Peer is one member of the pool as glusterd reports it.
type Peer struct {
	UUID      string   `json:"uuid"`
	Hostname  string   `json:"hostname"`            // "localhost" for the machine whose glusterd answers
	Names     []string `json:"names,omitempty"`     // all names and addresses of the machine
	Self      bool     `json:"self,omitempty"`      // whether this is the machine whose glusterd answers
	Connected bool     `json:"connected"`           // true for many seconds after a loss, which glusterd notices late
	State     int      `json:"state"`               // 3 is a full member; 0 for Self
	StateText string   `json:"stateText,omitempty"` // "Peer in Cluster", "Peer Rejected" …
}

// PeerInCluster is the state of a full member (glusterd-sm.h, GD_FRIEND_STATE_BEFRIENDED),
// PeerRejected that of a peer whose configuration differs.
const (
	PeerInCluster = 3
	PeerRejected  = 6
)

// VolumeState is `status` of `volume info`.
type VolumeState int

// States of a volume.
const (
	Created VolumeState = 0
	Started VolumeState = 1
	Stopped VolumeState = 2
)

func (s VolumeState) String() string {
	switch s {
	case Created:
		return "created"
	case Started:
		return "started"
	case Stopped:
		return "stopped"
	}
	return "unknown"
}

// Volume is the configuration of a volume, from `volume info`. The configuration does not say which
// bricks run.
type Volume struct {
	Name     string            `json:"name"`
	ID       string            `json:"id"`
	State    VolumeState       `json:"state"`
	Type     string            `json:"type"` // "Distribute", "Replicate" …
	Dist     int               `json:"dist"`
	Replica  int               `json:"replica"`
	Arbiters int               `json:"arbiters"`
	Bricks   []Brick           `json:"bricks"`
	Options  map[string]string `json:"options"` // only options that were set explicitly
}

// Brick is one directory of a volume.
type Brick struct {
	Name     string `json:"name"` // host:/path
	HostUUID string `json:"hostUUID"`
	Arbiter  bool   `json:"arbiter,omitempty"`
}

// Process is one line of `volume status`: a brick or a self-heal daemon. The answer omits processes
// of disconnected machines.
type Process struct {
	Name     string `json:"name"` // host:/path for a brick, "" for a self-heal daemon
	HostUUID string `json:"hostUUID"`
	Online   bool   `json:"online"`
	Port     int    `json:"port,omitempty"`
	PID      int    `json:"pid,omitempty"` // process ID on its machine

	// Sized reports whether the answer had the fields below, which only `volume status detail`
	// returns.
	Sized       bool   `json:"sized,omitempty"`
	Total       uint64 `json:"total,omitempty"` // size in bytes
	Free        uint64 `json:"free,omitempty"`
	Inodes      uint64 `json:"inodes,omitempty"`
	InodesFree  uint64 `json:"inodesFree,omitempty"`
	FileSystem  string `json:"fileSystem,omitempty"`
	MountOption string `json:"mountOptions,omitempty"`
}

// Count is a number that may be unknown. Unknown is not 0.
type Count struct {
	N     int  `json:"n"`
	Known bool `json:"known"`
}

// Zero reports whether the count is known to be 0.
func (c Count) Zero() bool { return c.Known && c.N == 0 }

// Heal is the number of entries of one brick that other bricks still lack, from `heal info`.
type Heal struct {
	Brick      string      `json:"brick"` // host:/path
	Connected  bool        `json:"connected"`
	Status     string      `json:"status"`
	Total      Count       `json:"total"`
	Pending    Count       `json:"pending"`    // only the summary has it
	SplitBrain Count       `json:"splitBrain"` // only the summary and the split-brain list have it
	Entries    []HealEntry `json:"entries,omitempty"`
}

// HealEntry is one file or directory whose copies differ at the moment.
type HealEntry struct {
	Path string `json:"path"` // "/a/b", or "<gfid:…>" if gluster knows no name
	GFID string `json:"gfid"`
}
