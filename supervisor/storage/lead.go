package storage

import (
	"context"
	"fmt"
	"saltern/glusterctl/cli"
)

// leads tells whether this node makes the changes of the pool now, and whether
// nobody else can think the same at the same time (fenced). why says who else.
func (m *Manager) leads() (ok, fenced bool, why string) {
	held, holder := m.lease.held()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case held:
		return true, true, ""
	case m.cfg.Form && !m.formed:
		return true, true, "" // nobody else is there
	case holder != "":
		return false, false, holder + " does"
	case m.obs == nil:
		return false, false, "not looked yet"
	case m.obs.Volume == nil:
		return false, false, "this node has not been taken in yet"
	}
	// Without the volume there is no lease. What brings the volume back loses
	// nothing, so the first node that has a majority of the pool does it.
	q := m.obs.Quorum()
	if m.obs.Volume.State == cli.Started && (!q.Known || q.Spare >= 0) {
		return false, false, "nobody known holds the lease"
	}
	up := 0
	for _, p := range m.obs.Pool {
		if p.Self || p.Connected {
			up++
		}
	}
	if 2*up < len(m.obs.Pool) {
		return false, false, "most nodes are away"
	}
	for _, x := range m.desired().Members {
		if x.Name == m.cfg.Self {
			return true, false, ""
		}
		if m.obs.Reachable[x.Address] {
			return false, false, x.Name + " is there and comes first"
		}
	}
	return false, false, "this node is no member"
}

// mayLead tells whether this node may take the lease: it is a member that
// stays, and its mount works.
func (m *Manager) mayLead() bool {
	in, leaving := m.member()
	return in && !leaving && m.mountWorks()
}

// mayChange is asked before each step.
func (m *Manager) mayChange(ctx context.Context) error {
	ok, _, why := m.leads()
	if !ok {
		return fmt.Errorf("%w: %s", errNotNow, why)
	}
	if m.cfg.Lead != nil {
		return m.cfg.Lead(ctx)
	}
	return nil
}
