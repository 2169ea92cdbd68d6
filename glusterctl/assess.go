package glusterctl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/glusterctl/cli"
	"saltern/glusterctl/mount"
)

// Severity is how serious a problem is.
type Severity string

// Severities.
const (
	Warning  Severity = "warning"  // the volume serves, but is less safe than it should be
	Critical Severity = "critical" // the volume does not serve, or may lose data
)

// Problem is one thing that is wrong now, for the status.
type Problem struct {
	Finding
	Severity Severity `json:"severity"`
}

// Quorum counts the bricks of the volume, and how many of them may still fail.
type Quorum struct {
	Bricks int  `json:"bricks"` // bricks of the volume, including the arbiter
	Up     int  `json:"up"`
	Spare  int  `json:"spare"` // bricks that may fail before the volume stops
	Known  bool `json:"known"`
}

// Quorum returns how many bricks run, compared with the number that a write needs.
func (o *Observation) Quorum() Quorum {
	q := Quorum{}
	if o.Volume == nil || o.Processes == nil {
		return q
	}

	q.Known, q.Bricks = true, len(o.Volume.Bricks)
	for _, b := range o.Volume.Bricks {
		if up, _ := o.brickState(b); up {
			q.Up++
		}
	}

	need := q.Bricks/2 + 1
	if q.Bricks == 2 { // of two bricks, a write needs only the first
		need = 1
		if q.Up > 0 {
			if up, _ := o.brickState(o.Volume.Bricks[0]); !up {
				need = 2
			}
		}
	}

	q.Spare = q.Up - need
	if q.Bricks == 2 && q.Up == 2 {
		q.Spare = 0 // losing the first brick stops the volume
	}

	return q
}

// The limits below which space and inodes are reported, in percent free.
const (
	lowPercent  = 10
	fullPercent = 2
)

// Assess returns all problems of the storage, causes before consequences. It is a pure function of
// the observed and the desired state.
func Assess(o *Observation, d Desired) (out []Problem) {
	say := func(sev Severity, code, next, format string, args ...any) *Problem {
		out = append(out,
			Problem{Finding{Code: "storage." + code, What: fmt.Sprintf(format, args...), Next: next}, sev})
		return &out[len(out)-1]
	}

	assessMount(o, say)
	if o.Daemon != "" {
		say(Critical, "daemon_down", "systemctl status glusterd; look at /var/log/glusterfs/glusterd.log",
			"glusterd on this node does not answer")
		return out
	}

	if len(o.Disowned) > 0 {
		say(Critical, "disowned", "if this node was removed on purpose, reset it and let it join again",
			"%s no longer count(s) this node as a member", strings.Join(o.Disowned, ", "))
	}

	for _, m := range d.others() {
		p, known := o.peerNamed(m.Name, m.Address)
		switch {
		case known && p.State == cli.PeerRejected:
			say(Critical, "peer_rejected", "reset the storage of "+m.Name+" and let it join again",
				"the pool rejects %s: its configuration differs", m.Name).Subject = m.Name
		case known && !p.Connected:
			say(Warning, "peer_down", "bring "+m.Name+" back, or remove it", "%s is away", m.Name).Subject = m.Name
		case known && !o.Reachable[m.Address]:
			say(Warning, "peer_silent", "check the network of "+m.Name, "%s does not answer", m.Name).Subject = m.Name
		case !known && o.Pool != nil:
			say(Warning, "peer_missing", "run the storage plan", "%s is not in the pool", m.Name).Subject = m.Name
		}
	}

	switch {
	case o.VolumeError != "":
		say(Critical, "volume_unknown", "look at /var/log/glusterfs/glusterd.log",
			"the volume's configuration cannot be read: %s", o.VolumeError)
	case o.Volume == nil:
		say(Critical, "no_volume", "run the storage plan", "volume %s does not exist", d.Volume)
	case o.Volume.State != cli.Started:
		say(Critical, "volume_stopped", "gluster volume start "+d.Volume, "volume %s is %s", d.Volume, o.Volume.State)
	default:
		assessVolume(o, d, say)
	}

	return out
}

// sayFunc adds a problem and returns it. The pointer is valid until the next call.
type sayFunc func(sev Severity, code, next, format string, args ...any) *Problem

func assessMount(o *Observation, say sayFunc) {
	h := o.Mount
	if h == nil {
		return
	}

	switch h.State {
	case mount.OK:
		free := percent(h.Free, h.Total)
		if h.Inodes > 0 {
			free = min(free, percent(h.InodesFree, h.Inodes))
		}

		switch {
		// Writes fail although there is free space: the bricks keep some in reserve, or have a
		// quota.
		case !h.Writable && strings.HasPrefix(h.Text, "write: "):
			say(Critical, "volume_full", "delete what is not needed, or give the nodes larger disks",
				"the volume takes no more data: %s, with %.1f %% of space or inodes free", h.Text, free)
		case h.Total > 0 && free < fullPercent:
			say(Critical, "volume_full", "delete what is not needed, or give the nodes larger disks",
				"the volume is full: %.1f %% of space or inodes free", free)
		case h.Total > 0 && free < lowPercent:
			say(Warning, "volume_low", "delete what is not needed, or give the nodes larger disks",
				"the volume has %.1f %% of space or inodes free", free)
		}
	case mount.Absent:
		say(Critical, "mount_absent",
			"it is mounted again by itself; if not: look at the client's log in /var/log/glusterfs",
			"the volume is not mounted on this node")
	case mount.Hung:
		say(Critical, "mount_hung", "check that the other nodes and their bricks run",
			"the mount does not answer: %s", h.Text)
	default:
		say(Critical, "mount_"+string(h.State), "look at the client's log in /var/log/glusterfs",
			"the mount does not work: %s", h.Text)
	}
}

func assessVolume(o *Observation, d Desired, say sayFunc) {
	if o.StatusError != "" {
		say(Warning, "status_unknown", "it is asked again; if it stays: gluster volume status "+d.Volume,
			"it is not known which bricks run: %s", o.StatusError)
	}

	q := o.Quorum()
	switch {
	case q.Known && q.Spare < 0:
		say(Critical, "no_quorum", "bring a node back", "%d of %d bricks run: the volume accepts no writes",
			q.Up, q.Bricks)
	case q.Known && q.Bricks > 2 && q.Spare == 0:
		say(Warning, "no_spare", "bring the missing brick back",
			"%d of %d bricks run: with one more lost the volume stops", q.Up, q.Bricks)
	}

	for _, b := range o.Volume.Bricks {
		host, _, _ := cli.SplitBrick(b.Name)
		away := slices.ContainsFunc(o.Pool,
			func(p cli.Peer) bool { return p.UUID == b.HostUUID && !p.Self && !p.Connected })
		if up, known := o.brickState(b); known && !up && !away {
			say(Warning, "brick_down",
				"gluster volume start "+d.Volume+" force; if its disk is lost, replace the brick",
				"the brick %s does not run although %s is there", b.Name, host).Subject = b.Name
		}
	}

	for _, p := range o.Processes {
		if p.Name == "" {
			if !p.Online {
				say(Warning, "healing_off", "gluster volume start "+d.Volume+" force",
					"a self-heal daemon does not run (%s)", p.HostUUID)
			}
			continue
		}

		if !p.Sized || p.Total == 0 {
			continue
		}

		space, inodes := percent(p.Free, p.Total), 100.0
		if p.Inodes > 0 {
			inodes = percent(p.InodesFree, p.Inodes)
		}

		what, least := "space", space
		if inodes < space {
			what, least = "inodes", inodes
		}

		switch {
		case least < fullPercent:
			say(Critical, "brick_full", "make the disk of that node larger, or delete what is not needed",
				"the disk of %s has %.1f %% %s left", p.Name, least, what).Subject = p.Name
		case least < lowPercent:
			say(Warning, "brick_low", "make the disk of that node larger, or delete what is not needed",
				"the disk of %s has %.1f %% %s left", p.Name, least, what).Subject = p.Name
		}
	}

	if h := o.HealState(); h.SplitBrain.N > 0 {
		say(Critical, "split_brain", "list them with their remedies: applianced storage status",
			"copies disagree about %d entries", h.SplitBrain.N)
	}

	if allow := o.Volume.Options["auth.allow"]; allow == "" || allow == "*" {
		say(Warning, "auth_open", "run the storage plan", "any machine that reaches the bricks may mount the volume")
	}

	if d.TLS && (o.Volume.Options["client.ssl"] != "on" || o.Volume.Options["server.ssl"] != "on") {
		say(Warning, "tls_off", "TLS is decided when the cluster is formed", "data connections are not encrypted")
	}
}

func percent(part, whole uint64) float64 {
	if whole == 0 {
		return 100
	}
	return 100 * float64(part) / float64(whole)
}

// HealTracker stores since when each entry has waited for healing. Only one goroutine may use it.
type HealTracker struct {
	// Patience is how long an entry may wait while all bricks run; 0 means 10 min.
	Patience time.Duration

	since map[cli.HealEntry]time.Time
}

// maxTracked bounds how many entries are tracked. Entries beyond the bound are ignored.
const maxTracked = 10_000

// Stuck is an entry that has waited too long for healing.
type Stuck struct {
	cli.HealEntry
	Since time.Time `json:"since"`
}

// Update takes a list of entries (cli.Client.HealEntries) and returns those that were in every list
// for longer than Patience. While a brick is down, entries cannot heal, so their time begins when
// the brick is up again.
func (t *HealTracker) Update(now time.Time, bricks []cli.Heal) []Stuck {
	patience := t.Patience
	patience = cmp.Or(patience, 10*time.Minute)
	next := map[cli.HealEntry]time.Time{}
	allUp := true
	for _, b := range bricks {
		if !b.Connected {
			allUp = false
		}

		for _, e := range b.Entries {
			if len(next) >= maxTracked {
				break
			}

			first, ok := t.since[e]
			if !ok {
				first = now
			}

			next[e] = first
		}
	}

	t.since = next
	if !allUp {
		t.since = nil
		return nil
	}

	var out []Stuck
	for e, first := range next {
		if now.Sub(first) >= patience {
			out = append(out, Stuck{e, first})
		}
	}

	slices.SortFunc(out, func(a, b Stuck) int { return strings.Compare(a.Path+a.GFID, b.Path+b.GFID) })
	return out
}
