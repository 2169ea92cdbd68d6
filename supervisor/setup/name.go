package setup

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"saltern/internal/command"
	"saltern/supervisor/nodes"
)

// imageHostname is the host name of every machine that runs from the image, until its administrator
// gives the machine another name.
const imageHostname = "saltern"

// NodeName returns the name of a node if the answers give none: the machine's host name. A machine
// that still has the name from the image gets salt- and the last six digits of its first network
// card's address.
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

// SetHostname sets the machine's host name, now and for later starts. It uses systemd-hostnamed and
// needs root.
func SetHostname(ctx context.Context, name string) error {
	// systemd may have to start systemd-hostnamed first.
	_, err := command.Do(ctx, command.Exec{Limit: 30 * time.Second}, "hostnamectl", "--no-ask-password",
		"set-hostname", name)
	if err != nil {
		return fmt.Errorf("set the host name %s: %w", name, err)
	}
	return nil
}

// nameMachine sets the machine's host name. It uses the host name in the answers. If there is none,
// it uses the node's name on an appliance, so that prompts, the journal and DHCP leases distinguish
// the nodes. The name of the node never follows a host name.
func (m *Machine) nameMachine(ctx context.Context, a Answers) error {
	given := a.Network.Hostname
	if m.cfg.Host == nil || given == "" && !m.cfg.Ours {
		return nil
	}

	err := m.cfg.Host.SetHostname(ctx, cmp.Or(given, a.Node))
	switch {
	case err == nil:
		return nil
	case given == "": // the answers contain no host name: a failure does not matter
		m.cfg.Log.Warn("the machine keeps its host name", "error", err)
		return nil
	}

	return withHint(err, "look at systemd-hostnamed: systemctl status systemd-hostnamed",
		"leave network.hostname out of the answers: applianced setup back")
}

// freeName returns a name that no node of the cluster has or ever had.
func freeName(t nodes.Table) string {
	for n := len(t.Nodes) + 1; ; n++ {
		name := fmt.Sprintf("%s-%d", t.Cluster, n)
		if !slices.ContainsFunc(t.Nodes, func(o nodes.Node) bool { return o.Name == name }) {
			return name
		}
	}
}
