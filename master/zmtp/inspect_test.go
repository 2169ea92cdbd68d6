package zmtp

func (p *pool) inUse() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Disconnect closes the connections for which match returns true, and returns their number. match
// must not call the Pub.
func (p *Pub) Disconnect(match func(Peer) bool) int {
	n := 0
	p.hub.forEachMember(func(m *member) {
		if match(m.peer) {
			m.fail(nil)
			n++
		}
	})
	return n
}
