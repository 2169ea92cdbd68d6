package glusterctl

import (
	"slices"
	"strings"
	"time"

	"saltern/glusterctl/cli"
	"saltern/glusterctl/mount"
)

// Observation is the state of the pool as seen from this node at one moment. An unknown part is nil
// or marked as unknown, and a field beside it holds the reason. Nothing is guessed.
type Observation struct {
	At time.Time `json:"at"`
	// Daemon is why the local glusterd does not answer, or "".
	Daemon string `json:"daemon,omitempty"`
	// Pool lists all members, including this node. It is nil when PoolError is set.
	Pool      []cli.Peer `json:"pool,omitempty"`
	PoolError string     `json:"poolError,omitempty"`
	// Reachable says for each address or name that was tried whether port 24007 accepted a
	// connection.
	Reachable map[string]bool `json:"reachable,omitempty"`
	// Disowned are members of the pool whose glusterd answers but does not list this node.
	Disowned []string `json:"disowned,omitempty"`
	// Unsure are members whose glusterd answers, but does not yet report all other members as full
	// members.
	Unsure []string `json:"unsure,omitempty"`
	// Volume is the configuration of the volume, nil when there is none.
	Volume      *cli.Volume `json:"volume,omitempty"`
	VolumeError string      `json:"volumeError,omitempty"`
	// Elsewhere are members of the pool whose glusterd has the volume although this node's has not.
	// glusterds exchange their volumes when they meet, but sometimes a glusterd that meets two
	// others at once stores none (10.3).
	Elsewhere []string `json:"elsewhere,omitempty"`
	// Others are the names of other volumes.
	Others []string `json:"others,omitempty"`
	// Processes are the bricks and self-heal daemons of all machines that answer.
	Processes   []cli.Process `json:"processes,omitempty"`
	StatusError string        `json:"statusError,omitempty"`
	// Heal lists the entries to heal. It is nil if HealError is set or the volume has only one
	// copy.
	Heal      []cli.Heal `json:"heal,omitempty"`
	HealError string     `json:"healError,omitempty"`
	// SameEntries reports whether all answering bricks list the same pending entries. It is false
	// if no brick was asked.
	SameEntries bool `json:"sameEntries,omitempty"`
	// Mount is the mount on this node, nil when none is wanted.
	Mount *mount.Health `json:"mount,omitempty"`
}

// HealState is the sum over all bricks.
type HealState struct {
	Pending    cli.Count `json:"pending"`
	SplitBrain cli.Count `json:"splitBrain"`
	// Away are bricks that did not answer.
	Away []string `json:"away,omitempty"`
}

// HealState returns the sums of the counts in Heal. The counts are known only if every brick has
// answered. A file that is missing on one of three bricks counts twice, once for each brick that
// has the file.
func (o *Observation) HealState() (s HealState) {
	if o.Volume != nil && o.Volume.Replica == 1 && len(o.Volume.Bricks) == 1 {
		s.Pending.Known, s.SplitBrain.Known = true, true
		return s
	}
	if o.Volume == nil || o.Heal == nil {
		return s
	}

	s.Pending.Known = len(o.Heal) == len(o.Volume.Bricks)
	s.SplitBrain.Known = len(o.Heal) == len(o.Volume.Bricks)
	for _, h := range o.Heal {
		s.Pending.N += h.Total.N
		s.SplitBrain.N += h.SplitBrain.N
		if !h.Connected {
			s.Away = append(s.Away, h.Brick)
		}

		if !h.Connected || !h.Total.Known {
			s.Pending.Known = false
		}

		if !h.Connected || !h.SplitBrain.Known {
			s.SplitBrain.Known = false
		}
	}

	return s
}

// Hidden reports whether a brick runs but no client finds it: glusterd reports the brick as online
// but does not know its port. That happens if glusterd has started the brick twice at the same
// time, for example when glusterd meets two peers at once (seen with 10.3). The brick stays hidden
// until glusterd restarts: then the brick reports its port.
func (o *Observation) Hidden(brick string) bool {
	up, known := o.brickState(cli.Brick{Name: brick})
	return up && known && slices.Contains(o.HealState().Away, brick)
}

// complete returns the bricks that were recorded as complete.
func (o *Observation) complete() []string {
	if o.Volume == nil || o.Volume.Options[completeOption] == "" {
		return nil
	}
	return strings.Split(o.Volume.Options[completeOption], ",")
}

// selfUUID returns this node's UUID in the pool, or "" when it is unknown.
func (o *Observation) selfUUID() string {
	for _, p := range o.Pool {
		if p.Self {
			return p.UUID
		}
	}
	return ""
}

// peerNamed returns the pool entry of the machine that has one of names, or false if there is none.
func (o *Observation) peerNamed(names ...string) (cli.Peer, bool) {
	for _, p := range o.Pool {
		if p.Self {
			continue
		}
		for _, n := range names {
			if n != "" && (p.Hostname == n || slices.Contains(p.Names, n)) {
				return p, true
			}
		}
	}
	return cli.Peer{}, false
}

// brickState reports whether a brick runs. known is false if that is unknown.
func (o *Observation) brickState(b cli.Brick) (up, known bool) {
	if o.Processes == nil {
		return false, false
	}
	for _, p := range o.Processes {
		if p.Name == b.Name {
			return p.Online, true
		}
	}
	return false, true // gluster does not list the bricks of a machine that is unreachable
}
