package storage

import (
	"context"
	"fmt"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cli"
)

// turnEvery is how long a node may take to bring a volume back that has
// stopped, before the next one tries.
const turnEvery = 2 * time.Minute

// leads reports whether this node makes the changes of the pool now, and whether
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

	// One whose glusterd answers may lack its applianced: the next one waits
	// longer each.
	turn := time.Duration(0)
	for _, x := range m.desired().Members {
		if x.Role == glusterctl.Arbiter {
			continue // see decidesOnly
		}
		if x.Name == m.cfg.Self {
			return true, false, ""
		}

		if m.obs.Reachable[x.Address] {
			if turn += turnEvery; m.down.IsZero() || m.cfg.Now().Sub(m.down) < turn {
				return false, false, x.Name + " is there and comes first"
			}
		}
	}

	return false, false, "this node makes no changes"
}

// stopped reports whether the volume takes no writes: it was stopped, or too many
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
	in, leaving := m.member()
	return in && !leaving && !m.decidesOnly() && m.mountWorks()
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
