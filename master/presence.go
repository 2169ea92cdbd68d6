package master

import (
	"net/netip"
	"slices"

	"saltern/master/presence"
)

// saw notes from where a minion asked.
func (m *Master) saw(id string, from netip.AddrPort) { m.presence.Saw(id, from.Addr(), m.now()) }

// subscriptions are the connections on the publish port.
func (m *Master) subscriptions(yield func(presence.Subscription) bool) {
	if m.pub == nil {
		return
	}
	for s := range m.pub.Each {
		if !yield(presence.Subscription{From: s.Remote.Addr(), Topics: s.Topics}) {
			return
		}
	}
}

// connected returns the ids of connected minions.
func (m *Master) connected() []string { return m.presence.Connected(m.subscriptions) }

// connectedCount is what max_minions is compared with.
func (m *Master) connectedCount(id string) (int, bool) {
	ids := m.connected()
	_, has := slices.BinarySearch(ids, id)
	return len(ids), has
}
