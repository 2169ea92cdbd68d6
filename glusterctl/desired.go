package glusterctl

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Role says what a member brings to the volume.
type Role string

// Roles of members.
const (
	Data    Role = "data"    // a full copy, if one is needed
	Arbiter Role = "arbiter" // names only: decides for two data members
	Client  Role = "client"  // no brick: uses the volume
)

// Member is one machine of the pool.
type Member struct {
	// Name is how all members call it: in probes, bricks and certificates. It
	// must resolve to Address on every member, on itself as well (not to
	// 127.0.1.1).
	Name string `json:"name"`
	// Address is its IP address on the network of the pool.
	Address string `json:"address"`
	Role    Role   `json:"role"`
	// Brick is the directory for its copy, on a file system that is not the
	// root. It must never have been a brick before (see disk.FreshBrick): a
	// member that comes back with an empty disk gets a new name here, and the
	// plan then replaces the old brick.
	Brick string `json:"brick,omitempty"`
}

// BrickName is host:/path as glusterd writes it.
func (m Member) BrickName() string { return m.Name + ":" + m.Brick }

// Timers decide how long a node that vanished without a word holds up the
// others.
type Timers struct {
	// Ping is how long a client waits for a brick that does not answer; the
	// longest stall of a write is about one and a half times as long. Under 5 s
	// a loaded network flaps.
	Ping time.Duration `json:"ping"`
	// UserTimeout and the keepalive values end the connections of a lost node
	// and with them its locks.
	UserTimeout       time.Duration `json:"userTimeout"`
	KeepaliveTime     time.Duration `json:"keepaliveTime"`
	KeepaliveInterval time.Duration `json:"keepaliveInterval"`
	KeepaliveCount    int           `json:"keepaliveCount"`
}

// DefaultTimers hold a write up for less than 8 s, and free the locks of a lost
// node after about as long (gluster's own: 73 s and 38 s or more).
//
// Ping alone does not do that: it ends a connection after one to two times its
// value, and looks at the process on the other side, so that a short one cuts
// nodes off that are only busy. The user timeout ends a connection on which data
// is on its way, keepalive an idle one; both ask the other side's kernel, which
// answers under load as well.
func DefaultTimers() Timers {
	return Timers{
		Ping:              5 * time.Second,
		UserTimeout:       6 * time.Second,
		KeepaliveTime:     3 * time.Second,
		KeepaliveInterval: time.Second,
		KeepaliveCount:    3,
	}
}

// maxReplica is the largest number of copies: each write goes to all of them,
// and three survive the loss of any one without losing the majority.
const maxReplica = 3

// Desired is what the pool should be. The order of Members is the order in
// which they are given copies.
type Desired struct {
	Volume string `json:"volume"`
	// Self is the Name of the member this runs on.
	Self    string   `json:"self"`
	Members []Member `json:"members"`
	// Leaving are names or addresses of pool members to be let go. A pool member
	// that is in neither list is left alone and reported.
	Leaving []string `json:"leaving,omitempty"`
	// Form allows a volume to be created. Only the node that forms the cluster
	// sets it; elsewhere a missing volume is a fault.
	Form bool `json:"form,omitempty"`
	// TwoCopies allows two data members without an arbiter to hold two copies.
	// With the first of them lost the volume stops until it is back; without
	// this option there is one copy until a third member joins.
	TwoCopies bool `json:"twoCopies,omitempty"`
	// AcceptLoss names bricks (host:/path) that may be given up although the
	// data may not be complete without them. Operators write it by hand.
	AcceptLoss []string `json:"acceptLoss,omitempty"`
	// TLS encrypts data connections, and only members' certificates are
	// accepted. It is decided when the volume is formed.
	TLS    bool   `json:"tls,omitempty"`
	Timers Timers `json:"timers"`
	// Options are further volume options; they win over ours.
	Options map[string]string `json:"options,omitempty"`
	// Mount is where this node mounts the volume; "" means not at all.
	Mount string `json:"mount,omitempty"`
	// Layout is the version of the tree that the forming node makes on the
	// volume; 0 means none.
	Layout int `json:"layout,omitempty"`
}

var (
	hostRE   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
	volumeRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	optionRE = regexp.MustCompile(`^[a-z][a-z0-9._-]{1,127}$`)
)

// Validate reports everything that is wrong with d at once. Names become
// arguments of commands, so nothing that could be an option passes.
func (d Desired) Validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !volumeRE.MatchString(d.Volume) {
		bad("volume name %q", d.Volume)
	}

	if len(d.Members) == 0 || len(d.Members) > 64 {
		bad("%d members: 1 to 64 are possible", len(d.Members))
	}

	seen := map[string]string{}
	unique := func(v, whose string) {
		if other, ok := seen[v]; ok {
			bad("%s of %s is used by %s", v, whose, other)
		}
		seen[v] = whose
	}

	arbiters := 0
	for _, m := range d.Members {
		if !hostRE.MatchString(m.Name) || m.Name == "localhost" {
			bad("member name %q", m.Name)
		}

		if a, err := netip.ParseAddr(m.Address); err != nil || a.IsLoopback() || a.IsUnspecified() ||
			a.IsMulticast() || a.Zone() != "" {
			bad("address %q of member %s", m.Address, m.Name)
		}

		unique(m.Name, m.Name)
		if m.Address != m.Name {
			unique(m.Address, m.Name)
		}

		switch m.Role {
		case Arbiter:
			arbiters++
		case Data, Client:
		default:
			bad("role %q of member %s", m.Role, m.Name)
		}

		if m.Role != Client && (!path.IsAbs(m.Brick) || path.Clean(m.Brick) != m.Brick || m.Brick == "/" ||
			strings.ContainsFunc(m.Brick, unsafePath)) {
			bad("brick %q of member %s: an absolute path of plain characters is needed", m.Brick, m.Name)
		}
	}

	if arbiters > 1 {
		bad("%d arbiters: one at most", arbiters)
	}

	if d.selfMember().Name == "" {
		bad("this node (%q) is not a member", d.Self)
	}

	for _, l := range d.Leaving {
		if !hostRE.MatchString(l) {
			bad("leaving member %q", l)
		}
		if w, ok := seen[l]; ok {
			bad("%s is both a member and leaving", w)
		}
	}

	for k, v := range d.Options {
		if !optionRE.MatchString(k) || v == "" || len(v) > 512 || strings.HasPrefix(v, "-") ||
			strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
			bad("option %q=%q", k, v)
		}
	}

	if d.Mount != "" && (!path.IsAbs(d.Mount) || path.Clean(d.Mount) != d.Mount || d.Mount == "/") {
		bad("mount point %q", d.Mount)
	}

	if d.Timers.Ping < time.Second {
		bad("ping timeout %v: use DefaultTimers", d.Timers.Ping)
	}

	return errors.Join(faults...)
}

func unsafePath(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-", r))
}

func (d Desired) selfMember() Member {
	i := slices.IndexFunc(d.Members, func(m Member) bool { return m.Name == d.Self })
	if i < 0 {
		return Member{}
	}
	return d.Members[i]
}

// others are the members other than this node.
func (d Desired) others() []Member {
	return slices.DeleteFunc(slices.Clone(d.Members), func(m Member) bool { return m.Name == d.Self })
}

// completeOption remembers in the configuration of the volume, which all
// members hold, which bricks had everything at a moment when all were up and
// nothing was to be healed. See proof.go.
const completeOption = "user.glusterctl-complete"

// granularOption cannot be set like others: `volume heal … granular-entry-heal
// enable` is its command.
const granularOption = "cluster.granular-entry-heal"

// options are the settings of the volume for so many copies and pool members.
// Every key that may ever be set is always there: a value that is not needed
// has its default, so that it is set back.
func (d Desired) options(replica, poolSize int, allow, names []string) map[string]string {
	sec := func(t time.Duration) string { return strconv.Itoa(int(t / time.Second)) }
	o := map[string]string{
		"network.ping-timeout":          sec(d.Timers.Ping),
		"server.tcp-user-timeout":       sec(d.Timers.UserTimeout),
		"client.tcp-user-timeout":       sec(d.Timers.UserTimeout),
		"server.keepalive-time":         sec(d.Timers.KeepaliveTime),
		"server.keepalive-interval":     sec(d.Timers.KeepaliveInterval),
		"server.keepalive-count":        strconv.Itoa(d.Timers.KeepaliveCount),
		"storage.health-check-interval": "10",
		// Requests that were on their way to a brick when its node vanished are
		// sometimes never answered by the client (seen with 10.3: two of three
		// bricks had answered a statfs, the third was gone, the call hung). Only this
		// timeout ends them; its default is half an hour.
		"network.frame-timeout": "30",
		// How often the self-heal daemon looks by itself; its default is 10 minutes.
		"cluster.heal-timeout": "60",
		// A client believes attributes and contents of files that it has seen for a second,
		// even when a list of their directory has just brought other ones: a file that two
		// nodes write in turn would be as its first writer left it. See mdc_inode_iatt_get
		// and __qr_cache_is_fresh in GlusterFS's xlators/performance.
		"performance.md-cache-timeout":         "0",
		"performance.quick-read-cache-timeout": "0",
		"diagnostics.client-log-level":         "WARNING",
		"cluster.quorum-type":                  "auto",
		"cluster.server-quorum-type":           "none",
		"cluster.favorite-child-policy":        "none",
		"auth.allow":                           strings.Join(allow, ","),
	}

	if poolSize >= 3 {
		o["cluster.server-quorum-type"] = "server"
	}

	if replica >= 3 {
		// A node that loses its cable while it replaces a file may leave another file
		// by that name on its own copy, which nobody was told is stored. With 10.3
		// opening it then gives EIO everywhere and healing never ends ("Gfid
		// mismatch", afr_gfid_split_brain_source in GlusterFS's
		// xlators/cluster/afr/src/afr-self-heal-common.c). What was acknowledged two
		// copies have; they win. An arbiter has a vote as well, but gives no content.
		o["cluster.favorite-child-policy"] = "majority"
	}

	if replica > 1 {
		o[granularOption] = "enable"
	}

	if d.TLS {
		o["client.ssl"], o["server.ssl"] = "on", "on"
		o["auth.ssl-allow"] = strings.Join(names, ",")
	}

	maps.Copy(o, d.Options)
	return o
}

// equalOption compares what is set with what is wanted; gluster keeps words as
// they were given.
func equalOption(key, have, want string) bool {
	if key == "auth.allow" || key == "auth.ssl-allow" {
		a, b := strings.Split(have, ","), strings.Split(want, ",")
		slices.Sort(a)
		slices.Sort(b)
		return slices.Equal(a, b)
	}
	if key == granularOption && have == "on" {
		have = "enable"
	}
	return have == want
}
