package life

import (
	"context"
	"time"

	"saltern/supervisor/service"
	"saltern/supervisor/status"
)

// stopIfRemoved stops the services of a node that was removed; it tells the set-up, so
// that this holds after a restart.
func (n *Life) stopIfRemoved(ctx context.Context) {
	for {
		if n.member.Removed() != "" {
			n.Log.Error("this node was removed from the cluster; it serves no more")
			if n.Setup != nil {
				n.Setup.Remove()
			}
			for _, name := range []string{status.MasterService, status.BalancerService} {
				_ = n.manager.Restart(name) // they wait for ever then
			}
			n.endBalancer(ctx)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// endBalancer ends the load balancer's process, which outlives a restart of its
// service, once that service waits.
func (n *Life) endBalancer(ctx context.Context) {
	for n.Settings.LB.Enabled && ctx.Err() == nil {
		for _, i := range n.manager.Services(0) {
			if i.Name == status.BalancerService && i.State == service.Waiting {
				n.balancer.process(nil).Stop()
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}
