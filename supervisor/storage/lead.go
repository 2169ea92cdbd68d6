package storage

import (
	"context"
	"fmt"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cli"
)

// turnEvery is how long a node may try to start a stopped volume before the next node tries too.
const turnEvery = 2 * time.Minute

// leadership reports in ok whether this node makes the changes of the pool now. fenced reports
// whether it is certain that no other node makes changes at the same time. why is "" if ok is true.
// Otherwise why says which node makes the changes, or why none does.
func (m *Manager) leadership() (ok, fenced bool, why string) {
	held, holder := m.lease.isHeld()
	m.mu.Lock()
	defer m.mu.Unlock()

	switch {
	case held:
		return true, true, ""
	case m.cfg.Form && !m.formed:
		return true, true, "" // there is no other node
	case holder != "":
		return false, false, holder + " does"
	case m.obs == nil:
		return false, false, "not looked yet"
	case m.obs.Volume == nil:
		return false, false, "this node has not been taken in yet"
	}

	// Without a volume that takes writes there is no lease. Starting the volume destroys nothing,
	// so the first node with a majority of the pool may do it.
	if !stopped(m.obs) {
		return false, false, "nobody is known to hold the lease"
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

	// A node whose glusterd answers may still lack a running applianced. So each reachable node in
	// the list gets turnEvery before the next one takes over.
	turn := time.Duration(0)
	for _, x := range m.desired().Members {
		if x.Role == glusterctl.Arbiter {
			continue // an arbiter makes no changes; see decidesOnly
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

// stopped reports whether the volume takes no writes, because it was stopped or too many copies are
// unreachable.
func stopped(o *glusterctl.Observation) bool {
	if o.Volume == nil {
		return false
	}
	q := o.Quorum()
	return o.Volume.State != cli.Started || q.Known && q.Spare < 0
}

// mayLead reports whether this node may take the lease: it is a member, does not leave, and its
// mount works.
func (m *Manager) mayLead() bool {
	in, leaving := m.membership()
	return in && !leaving && !m.decidesOnly() && m.mountWorks()
}

// mayChange returns nil if this node may make the next step, else an error with the reason.
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
