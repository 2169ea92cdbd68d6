package setup

import (
	"cmp"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"saltern/internal/control"
	"saltern/supervisor/settings"
)

// Validate checks answers without touching the machine or the network: their form, their ranges,
// and whether they are consistent. It fills in defaults from the facts of the machine, and splits a
// join string. It returns all faults at once, in the order of the form.
func Validate(a Answers, f Facts, base Base) Validation {
	c := &checker{a: a}
	c.checkMode()
	c.identity(f)
	c.virtual(f)
	c.network(f)
	c.checkAdmin()
	c.storage(f)
	c.checkRole()

	if len(c.faults) == 0 {
		c.settings(base)
	}

	if c.faults == nil {
		c.faults = []Fault{}
	}

	return Validation{Answers: c.a, Faults: c.faults}
}

// Faults joins a list of faults into one error. For an empty list it returns nil.
func Faults(list []Fault) error {
	var all *multierror.Error
	for _, f := range list {
		all = multierror.Append(all, fmt.Errorf("%s: %s", f.Field, f.Message))
	}
	return all.ErrorOrNil()
}

// ValidateNetwork checks the answers about the network only.
func ValidateNetwork(n Network, f Facts) []Fault {
	c := &checker{a: Answers{Network: n}}
	c.network(f)
	return c.faults
}

type checker struct {
	a      Answers
	faults []Fault
}

func (c *checker) addFault(field, format string, args ...any) {
	c.faults = append(c.faults, Fault{field, fmt.Sprintf(format, args...)})
}

// PlainName reports whether a text can be the name of a node: letters, digits,
// dot, dash, at most 63.
func PlainName(s string) bool { return control.PlainName(s) && !strings.Contains(s, "..") }

func (c *checker) checkMode() {
	a := &c.a
	if a.Mode == JoinAsArbiter {
		a.Mode = Join
		if a.Storage.Role != "" && a.Storage.Role != RoleArbiter {
			c.addFault("storage.role", "differs from mode arbiter; leave it out")
		}
		a.Storage.Role = RoleArbiter
	}

	if a.JoinString != "" {
		j, err := ParseJoin(a.JoinString)
		switch {
		case err != nil:
			c.addFault("join", "%v", err)
		case a.Secret != "" && a.Secret != j.Secret:
			c.addFault("secret", "differs from the one in the join string; leave it empty")
		case WeakSecret(j.Secret) != "":
			c.addFault("join",
				"its secret %s. Give the cluster another one on a node of it: applianced secret rotate",
				WeakSecret(j.Secret))
		default:
			a.JoinString = j.String()
			a.Secret = j.Secret
			a.Peers = mergeUnique(j.Peers, a.Peers)
		}

		a.Mode = cmp.Or(a.Mode, Join)
	}

	switch a.Mode {
	case "":
		c.addFault("mode", "is missing: form (the first node of a new cluster), join (a node of one that exists) "+
			"or arbiter (joins, and keeps no data)")
	case Form:
		if a.JoinString != "" {
			c.addFault("join", "is for mode join")
		}

		if len(a.Peers) > 0 {
			c.addFault("peers", "are for mode join: the first node of a cluster has none")
		}

		a.Cluster = cmp.Or(a.Cluster, "saltern")
		if a.Secret != "" {
			if why := freshFault(a.Secret); why != "" {
				c.addFault("secret", "%s; leave it empty and one is generated", why)
			}
		}
	case Join:
		c.checkJoin()
	default:
		c.addFault("mode", "%.20q is not known: form, join or arbiter", a.Mode)
	}

	if a.Cluster != "" && !PlainName(a.Cluster) {
		c.addFault("cluster_id", "%.70q is not a plain name (letters, digits, dot, dash, at most 63)", a.Cluster)
	}
}

func (c *checker) checkJoin() {
	a := &c.a
	if len(a.Peers) == 0 && a.JoinString == "" {
		c.addFault("peers", "is missing: the address of a node to join through, or a join string")
	}

	if len(a.Peers) > 16 {
		c.addFault("peers", "at most 16 are tried")
	}

	for _, p := range a.Peers {
		if !hostForm(p) {
			c.addFault("peers", "%.60q is not an address or host name (without a port)", p)
		}
	}

	switch {
	case a.JoinString != "":
	case a.Secret == "":
		c.addFault("secret", "is missing: that of the cluster, or a join string")
	default:
		switch why := freshFault(a.Secret); {
		case why == "":
		case secretFault(a.Secret) == "":
			c.addFault("secret", "%s. Give the cluster another one on a node of it: applianced secret rotate", why)
		default:
			c.addFault("secret", "%s", why)
		}
	}
}

func (c *checker) identity(f Facts) {
	a := &c.a
	if a.Node == "" {
		a.Node = NodeName(f)
		if a.Network.Hostname != "" {
			a.Node = a.Network.Hostname
		}
	}

	switch {
	case !PlainName(a.Node):
		c.addFault("node", "%.70q is not a host name (letters, digits, dot, dash, at most 63)", a.Node)
	case a.Node == "localhost" || strings.HasPrefix(a.Node, "localhost."):
		c.addFault("node", "localhost is every machine's name; give this one a name of its own")
	}

	if a.Address == "" {
		a.Address = DefaultAddress(a.Network, f)
	}

	switch ip, err := netip.ParseAddr(a.Address); {
	case a.Address == "":
		c.addFault("address", "this machine has no address on a default route; say which one other nodes reach it by")
	case err != nil || ip.Zone() != "":
		c.addFault("address", "%.60q is not an IP address", a.Address)
	case ip.IsUnspecified() || ip.IsMulticast():
		c.addFault("address", "%s is not the address of one machine", a.Address)
	default:
		a.Address = ip.String()
	}

	if len(a.Front) == 0 {
		a.Front = []string{"0.0.0.0"}
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is6() {
			a.Front = []string{"::", "0.0.0.0"}
		}
	}

	for _, s := range a.Front {
		if ip, err := netip.ParseAddr(s); err != nil || ip.Zone() != "" || ip.IsMulticast() {
			c.addFault("front", "%.60q is not an IP address", s)
		}
	}

	for _, p := range a.Peers {
		if p == a.Address {
			c.addFault("peers", "%s is this machine", p)
		}
	}
}

func (c *checker) network(f Facts) {
	n := c.a.Network
	if n.Hostname != "" && !PlainName(n.Hostname) {
		c.addFault("network.hostname", "%.70q is not a host name (letters, digits, dot, dash, at most 63)", n.Hostname)
	}

	for _, s := range n.DNS {
		if ip, err := netip.ParseAddr(s); err != nil || ip.IsUnspecified() {
			c.addFault("network.dns", "%.60q is not an IP address", s)
		}
	}

	for _, s := range n.Search {
		if !hostName.MatchString(s) || strings.Contains(s, "..") {
			c.addFault("network.search", "%.60q is not a domain, such as example.org", s)
		}
	}

	for _, s := range n.NTP {
		if !hostForm(s) {
			c.addFault("network.ntp", "%.60q is not an address or host name", s)
		}
	}

	switch n.Method {
	case "", "dhcp":
		if n.Address != "" || n.Gateway != "" {
			c.addFault("network.method", "must be static for an address or gateway to be used")
		}
	case "static":
		c.checkFixed(n)
	default:
		c.addFault("network.method", "%.20q is not known: dhcp or static", n.Method)
	}

	if n.Interface != "" && !slices.ContainsFunc(f.Interfaces,
		func(i Interface) bool { return i.Name == n.Interface }) {
		c.addFault("network.interface", "this machine has no %.20q", n.Interface)
	}

	if n.Method != "" && !f.Managed {
		c.addFault("network.method", "the network of this machine is managed elsewhere; leave it out")
	}
}

// checkFixed checks a fixed address and its gateway. If one of the two is wrong, checkFixed still
// checks the other, unless the check needs both.
func (c *checker) checkFixed(n Network) {
	p, err := netip.ParsePrefix(n.Address)
	switch {
	case n.Address == "":
		c.addFault("network.address", "is missing: an address with a prefix length, such as 192.0.2.10/24")
	case err != nil:
		c.addFault("network.address", "%.60q is not an address with a prefix length, such as 192.0.2.10/24", n.Address)
	case !p.Addr().IsGlobalUnicast() && !p.Addr().IsLinkLocalUnicast():
		c.addFault("network.address", "%s is not the address of one machine", n.Address)
	}

	if n.Gateway == "" {
		return
	}

	switch g, gatewayErr := netip.ParseAddr(n.Gateway); {
	case gatewayErr != nil:
		c.addFault("network.gateway", "%.60q is not an IP address", n.Gateway)
	case err == nil && (!p.Contains(g) || g == p.Addr()):
		c.addFault("network.gateway", "%s is not another machine of the network %s", g, p.Masked())
	}
}

func (c *checker) checkAdmin() {
	a := &c.a.Admin
	var keys []string
	for _, text := range a.SSHKeys { // the text may be a whole file of keys
		keys = append(keys, SplitKeys(text)...)
	}

	a.SSHKeys = keys
	if len(keys) > maxSSHKeys {
		c.addFault("admin.ssh_keys", "at most %d", maxSSHKeys)
		return
	}

	for _, k := range keys {
		if _, err := ParseSSHKey(k); err != nil {
			c.addFault("admin.ssh_keys", "%.40q %s", k, err.Error())
		}
	}

	if why := PasswordFault(a.Password); a.Password != "" && why != "" {
		c.addFault("admin.password", "%s", why)
	}
}

func (c *checker) storage(f Facts) {
	a := &c.a
	kinds := []string{settings.VolumeStorage, settings.DirectoryStorage, settings.LocalStorage}
	if a.Storage.Kind == "" && a.Mode == Form {
		a.Storage.Kind = settings.LocalStorage
		if f.Volume {
			a.Storage.Kind = settings.VolumeStorage
		}
	}

	switch k := a.Storage.Kind; {
	case k != "" && !slices.Contains(kinds, k):
		c.addFault("storage.kind", "%.20q is not known: %s", k, strings.Join(kinds, ", "))
	case k == settings.LocalStorage && a.Mode == Join:
		c.addFault("storage.kind", "local is for a machine alone; a node that joins shares the cluster's storage")
	case k == settings.DirectoryStorage && a.Storage.Path == "":
		c.addFault("storage.path", "is missing: the directory that all nodes share")
	case k == settings.VolumeStorage && !f.Volume:
		c.addFault("storage.kind", "a shared volume needs glusterd, which is not installed on this machine")
	}

	if p := a.Storage.Path; p != "" && (!filepath.IsAbs(p) || filepath.Clean(p) == "/" ||
		strings.ContainsAny(p, "\n\x00")) {
		c.addFault("storage.path", "%.60q is not an absolute path below /", p)
	}

	if a.DataDisk == autoDisk {
		c.onlyDisk(f)
	} else if d := a.DataDisk; d != "" {
		if !strings.HasPrefix(d, "/dev/") || strings.Contains(d, "..") {
			c.addFault("data_disk", "%.60q is not a block device such as /dev/sdb", d)
		} else if i := slices.IndexFunc(f.Disks, func(x Disk) bool { return x.Path == d }); i < 0 {
			c.addFault("data_disk", "this machine has no free disk %.60q", d)
		} else if !f.Disks[i].Empty && !a.EraseDisk {
			c.addFault("data_disk", "%s is not empty (%s); erase_data_disk: true erases it", d, f.Disks[i].Why)
		}
	}
}

// autoDisk as the value of DataDisk means the only empty disk of the machine.
const autoDisk = "auto"

// onlyDisk replaces autoDisk by the path of the only empty disk.
func (c *checker) onlyDisk(f Facts) {
	var empty []string
	for _, d := range f.Disks {
		if d.Empty {
			empty = append(empty, d.Path)
		}
	}

	switch len(empty) {
	case 0:
		c.addFault("data_disk",
			"is auto, but this machine has no empty disk besides the system's; "+
				"attach one, or leave data_disk out to use the system's disk")
	case 1:
		c.a.DataDisk = empty[0]
	default:
		c.addFault("data_disk", "is auto, but several disks are empty (%s); name one of them", strings.Join(empty, ", "))
	}
}

// settings renders appliance.yaml, which package settings then checks.
func (c *checker) settings(base Base) {
	text, err := Render(c.a, base)
	if err == nil {
		_, err = settings.Parse(text, "settings", c.a.Node)
	}

	var many *multierror.Error
	switch {
	case err == nil:
	case asMulti(err, &many):
		for _, e := range many.Errors {
			c.addFault("settings", "%s", strings.TrimPrefix(e.Error(), "settings: "))
		}
	default:
		c.addFault("settings", "%v", err)
	}
}

func asMulti(err error, to **multierror.Error) bool {
	m, ok := err.(*multierror.Error)
	*to = m
	return ok
}

func mergeUnique(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// volumePossible reports whether glusterd is installed, without which this machine cannot hold a
// copy of a volume.
func volumePossible() bool {
	_, err := exec.LookPath("glusterd")
	return err == nil
}
