package master

import "saltern/master/presence"

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
