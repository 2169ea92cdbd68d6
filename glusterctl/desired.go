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

// Role is a member's part in the volume.
type Role string

// Roles of members.
const (
	Data    Role = "data"    // a full copy, when another copy is needed
	Arbiter Role = "arbiter" // names only, without content: the third vote beside two data members
	Client  Role = "client"  // no brick: the member only uses the volume
)

// Member is one machine of the pool.
type Member struct {
	// Name is the member's name in probes, bricks and certificates. It must resolve to Address on
	// every member, including the member itself (not to 127.0.1.1).
	Name string `json:"name"`
	// Address is its IP address on the network of the pool.
	Address string `json:"address"`
	Role    Role   `json:"role"`
	// Brick is the directory of the member's copy, not on the root file system. It must never have
	// been a brick before (see disk.FreshBrick): a member that returns with an empty disk gets a
	// new directory name here, and the plan then replaces the old brick.
	Brick string `json:"brick,omitempty"`
}

// BrickName returns the brick as glusterd writes it: host:/path.
func (m Member) BrickName() string { return m.Name + ":" + m.Brick }

// Timers decide how long a node that is lost without closing its connections delays the other
// nodes.
type Timers struct {
	// Ping is how long a client waits for a brick that does not answer. A write stalls for at most
	// about one and a half times as long. With less than 5 s a loaded network loses connections
	// again and again.
	Ping time.Duration `json:"ping"`
	// UserTimeout and the keepalive values end the connections of a lost node, and so release its
	// locks.
	UserTimeout       time.Duration `json:"userTimeout"`
	KeepaliveTime     time.Duration `json:"keepaliveTime"`
	KeepaliveInterval time.Duration `json:"keepaliveInterval"`
	KeepaliveCount    int           `json:"keepaliveCount"`
}

// DefaultTimers returns timers with which the loss of a node delays a write by less than 8 s, and
// with which the lost node's locks are released after about as long (gluster's defaults: 73 s and
// 38 s or more).
//
// Ping alone is not enough. It ends a connection only after one to two times its value. The answer
// to a ping comes from the process of the other node, so a short value cuts off busy nodes. The
// user timeout ends a connection with unacknowledged data, and keepalive ends an idle connection.
// Both depend only on the kernel of the other node, which answers even under load.
func DefaultTimers() Timers {
	return Timers{
		Ping:              5 * time.Second,
		UserTimeout:       6 * time.Second,
		KeepaliveTime:     3 * time.Second,
		KeepaliveInterval: time.Second,
		KeepaliveCount:    3,
	}
}

// maxReplica is the largest number of copies. Each write goes to all copies, and with three the
// loss of any one leaves a majority.
const maxReplica = 3

// Desired is the wanted state of the pool. Members get copies in the order of Members.
type Desired struct {
	Volume string `json:"volume"`
	// Self is the Name of this node.
	Self    string   `json:"self"`
	Members []Member `json:"members"`
	// Leaving lists names or addresses of pool members to detach. A pool member that is neither in
	// Members nor in Leaving stays, and is reported.
	Leaving []string `json:"leaving,omitempty"`
	// Form allows Apply to create the volume. Only the node that forms the cluster sets it; on
	// other nodes a missing volume is a fault.
	Form bool `json:"form,omitempty"`
	// TwoCopies allows two copies on two data members without an arbiter. If the first of the two
	// is lost, the volume stops until it is back. Without this option there is one copy until a
	// third member joins.
	TwoCopies bool `json:"twoCopies,omitempty"`
	// AcceptLoss lists bricks (host:/path) that may be removed although the data may be incomplete
	// without them. Administrators set it by hand.
	AcceptLoss []string `json:"acceptLoss,omitempty"`
	// TLS encrypts data connections and accepts only members' certificates. It cannot be changed
	// after the volume is formed.
	TLS    bool   `json:"tls,omitempty"`
	Timers Timers `json:"timers"`
	// Options are further volume options, which override those that this package sets.
	Options map[string]string `json:"options,omitempty"`
	// Mount is where this node mounts the volume. "" means that it does not mount the volume.
	Mount string `json:"mount,omitempty"`
	// Layout is the version of the tree that the forming node creates on the volume. 0 means
	// none.
	Layout int `json:"layout,omitempty"`
}

var (
	hostRE   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
	volumeRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	optionRE = regexp.MustCompile(`^[a-z][a-z0-9._-]{1,127}$`)
)

// Validate returns all faults of d at once. Names become arguments of commands, so a name that
// could be an option is a fault.
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

// others returns the members other than this node.
func (d Desired) others() []Member {
	return slices.DeleteFunc(slices.Clone(d.Members), func(m Member) bool { return m.Name == d.Self })
}

// completeOption is an option in the volume's configuration, which all members store. Its value
// lists the bricks that were complete at a moment when all bricks ran and nothing needed healing.
// See proof.go.
const completeOption = "user.glusterctl-complete"

// granularOption is an option with a separate command: `volume heal … granular-entry-heal enable`.
const granularOption = "cluster.granular-entry-heal"

// options returns the settings of the volume with replica copies in a pool of poolSize members. The
// result always contains every key that may ever be set, if necessary with its default, so that an
// old value is reset.
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
		// If a node is lost while the client waits for its brick, the client sometimes never
		// completes the request. (Seen with 10.3: two of three bricks had answered a statfs, the
		// third was lost, and the call hung.) Only this timeout ends such requests; its default is
		// half an hour.
		"network.frame-timeout": "30",
		// How often, in seconds, the self-heal daemon looks for work by itself. The default is 10
		// minutes.
		"cluster.heal-timeout": "60",
		// A client caches attributes and contents of files for a second, even if a list of their
		// directory has just returned newer ones. So if two nodes wrote a file one after the other,
		// a node could read the first version. See mdc_inode_iatt_get and __qr_cache_is_fresh in
		// GlusterFS's xlators/performance.
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
		// A node that loses its cable while it replaces a file may leave a different file of that
		// name on its own copy, although that write was never acknowledged. With 10.3 opening
		// the file then fails with EIO everywhere, and healing never ends ("Gfid mismatch",
		// afr_gfid_split_brain_source in GlusterFS's
		// xlators/cluster/afr/src/afr-self-heal-common.c). An acknowledged write is on two
		// copies, so the majority wins. An arbiter has a vote as well, but no content.
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

// equalOption reports whether the value current of an option means the same as want. gluster stores
// a value as it was typed, such as "on" or "enable".
func equalOption(key, current, want string) bool {
	if key == "auth.allow" || key == "auth.ssl-allow" {
		a, b := strings.Split(current, ","), strings.Split(want, ",")
		slices.Sort(a)
		slices.Sort(b)
		return slices.Equal(a, b)
	}
	if key == granularOption && current == "on" {
		current = "enable"
	}
	return current == want
}
