package member

import (
	"saltern/supervisor/nodes"
	"saltern/supervisor/upgrade/rollout"
)

// System implements nodeapi.Host.
func (h host) System() rollout.Node { return h.m.cfg.System }

// Systems returns the systems of the other nodes of the cluster, as targets of an upgrade.
func (m Verbs) Systems() (list []rollout.Target) {
	t := m.keeper.Table()
	for _, n := range t.Peers(m.env.Settings.Node) {
		if n.State != nodes.Leaving {
			list = append(list, rollout.Target{Name: n.Name, Node: m.peers.clientFor(n).System()})
		}
	}
	return list
}
