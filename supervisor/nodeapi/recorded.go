package nodeapi

import (
	"fmt"
	"net/netip"

	"github.com/hashicorp/go-multierror"

	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

// recorded returns this node's entry in the table of nodes on its own disk, found by its key, and
// the name of the cluster. ok is false if there is no entry: the node has not joined, was removed,
// or has no cluster. If a file cannot be read, ok is false too: the node reports that when it
// starts.
func recorded(s *settings.Settings) (cluster string, n nodes.Node, ok bool) {
	if !s.Peering.Enabled {
		return "", nodes.Node{}, false
	}

	id, err := ReadIdentity(s.NodeDir())
	if err != nil {
		return "", nodes.Node{}, false
	}

	k, err := nodes.OpenKeeper(s.DataDir, "")
	if err != nil {
		return "", nodes.Node{}, false
	}

	t := k.Table()
	n, ok = t.ByCertificate(id.Hash)
	return t.Cluster, n, ok && n.State != nodes.Removed
}

// CheckRecorded returns an error if the node's settings contradict the table of nodes. name is the
// path of the settings' file, for the error. The table is right, because the other nodes use it.
func CheckRecorded(s *settings.Settings, name string) error {
	cluster, n, ok := recorded(s)
	if !ok {
		return nil
	}

	var faults *multierror.Error
	differs := func(key, have, want, next string) {
		faults = multierror.Append(faults,
			fmt.Errorf("%s: %s: %s is not what the table of nodes has for this node, %s; write %s: %s. %s",
				name, key, have, want, key, want, next))
	}

	const again = "It cannot be changed later: to change it, take the node out (applianced leave), then applianced reset, and let it join again"
	if s.Node != n.Name {
		differs("node", s.Node, n.Name, again+" (without the key node the host name counts)")
	}

	if s.Cluster != cluster {
		differs("cluster", s.Cluster, cluster, "The name of a cluster cannot be changed later")
	}

	if !sameAddress(s.Peering.Address, n.Address) {
		differs("peering.address", s.Peering.Address, n.Address,
			again+". A machine that does not have "+n.Address+" any more cannot leave: applianced remove "+
				n.Name+" on another node takes it out")
	}

	return faults.ErrorOrNil()
}

func sameAddress(a, b string) bool {
	x, err := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	return err == nil && err2 == nil && x.Unmap() == y.Unmap()
}

// FollowTable returns the settings, corrected by what the table of nodes says about the node.
func FollowTable(s *settings.Settings) *settings.Settings {
	cluster, n, ok := recorded(s)
	if !ok {
		return s
	}
	followed := *s
	followed.Node = n.Name
	followed.Cluster = cluster
	followed.Peering.Address = n.Address
	followed.Master.Address = n.Address // both settings have the same address
	return &followed
}
