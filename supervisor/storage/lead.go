package storage

import (
	"context"
	"fmt"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cli"
)

// turnEvery is how long a node may try to bring a stopped volume back before the next one
// tries.
const turnEvery = 2 * time.Minute

// leadership reports whether this node makes the changes of the pool now. fenced reports
// whether no other node can believe the same at the same time. why says who else makes
// the changes, or why nobody does.
func (m *Manager) leadership() (ok, fenced bool, why string) {
	held, holder := m.lease.isHeld()
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

	// Without the volume there is no lease. Bringing the volume back destroys nothing, so
	// the first node with a majority of the pool does it.
	if !stopped(m.obs) {
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

	// A node whose glusterd answers may lack its applianced: each node that comes after it
	// waits one turn longer.
	turn := time.Duration(0)
	for _, x := range m.desired().Members {
		if x.Role == glusterctl.Arbiter {
			continue // see decidesOnly
		}
		if x.Name == m.cfg.Self {
			return true, false, ""
		}

		if m.obs.Reachable[x.Address] {
			turn += turnEvery
			if m.stoppedSince.IsZero() || m.cfg.Now().Sub(m.stoppedSince) < turn {
				return false, false, x.Name + " is there and comes first"
			}
		}
	}

	return false, false, "this node makes no changes"
}

// stopped reports whether the volume takes no writes, because it was stopped or too many
// copies are away.
func stopped(o *glusterctl.Observation) bool {
	if o.Volume == nil {
		return false
	}
	q := o.Quorum()
	return o.Volume.State != cli.Started || q.Known && q.Spare < 0
}

// mayLead reports whether this node may take the lease: it is a member that
// stays, and its mount works.
func (m *Manager) mayLead() bool {
	in, leaving := m.membership()
	return in && !leaving && !m.decidesOnly() && m.mountWorks()
}

// mayChange returns why this node may not make the next step, or nil.
func (m *Manager) mayChange(ctx context.Context) error {
	ok, _, why := m.leadership()
	if !ok {
		return fmt.Errorf("%w: %s", errNotNow, why)
	}
	if m.cfg.Lead != nil {
		return m.cfg.Lead(ctx)
	}
	return nil
}
