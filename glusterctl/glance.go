package glusterctl

import (
	"context"

	"saltern/glusterctl/mount"
)

// Glance reports whether the state is still as in o, as far as that can be seen without a gluster
// command: the same glusterds accept connections, and the bricks and the self-heal daemon of this
// node are the same processes. If so, it returns true, and a copy of o with the present time and
// the mount's health h. It does not see changes of the pool's configuration: call Observe from time
// to time.
func (c *Controller) Glance(ctx context.Context, d Desired, o *Observation, h mount.Health) (*Observation, bool) {
	if o.Daemon != "" || o.Mount == nil || o.Mount.State != h.State {
		return nil, false
	}

	self := d.selfMember().Address
	now := *o
	now.At = c.cfg.Clock.Now()
	now.Mount = &h
	now.Reachable = map[string]bool{}
	addresses := []string{self}
	for a := range o.Reachable {
		if a != self {
			addresses = append(addresses, a)
		}
	}

	c.probeAddresses(ctx, addresses, &now)
	if ctx.Err() != nil || !now.Reachable[self] {
		return nil, false
	}

	for a, was := range o.Reachable {
		if now.Reachable[a] != was {
			return nil, false
		}
	}

	uuid := o.selfUUID()
	for _, p := range o.Processes {
		if p.HostUUID == uuid && p.Online && p.PID > 0 && !c.cfg.Machine.Alive(p) {
			return nil, false
		}
	}

	return &now, true
}
