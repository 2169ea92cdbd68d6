package setup

import (
	"fmt"
	"net"
	"slices"

	"saltern/supervisor/nodes"
)

// imageHostname is the host name of every machine that runs from the image
// until its administrator gives it another one.
const imageHostname = "saltern"

// NodeName is the name for a node that is given none: the machine's host name,
// or salt- and the last six digits of the first network card's address where
// that is the name of every machine.
func NodeName(f Facts) string {
	if f.Hostname != imageHostname {
		return f.Hostname
	}
	for _, i := range f.Interfaces {
		if mac, err := net.ParseMAC(i.MAC); err == nil && len(mac) >= 3 {
			return fmt.Sprintf("salt-%x", []byte(mac[len(mac)-3:]))
		}
	}
	return f.Hostname
}

// freeName is a name that no node of the cluster has or had.
func freeName(t nodes.Table) string {
	for n := len(t.Nodes) + 1; ; n++ {
		name := fmt.Sprintf("%s-%d", t.Cluster, n)
		if !slices.ContainsFunc(t.Nodes, func(o nodes.Node) bool { return o.Name == name }) {
			return name
		}
	}
}
