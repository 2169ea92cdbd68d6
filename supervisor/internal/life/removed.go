package life

import (
	"context"
	"time"

	"saltern/internal/pause"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// whenRemoved stops the services of a node that was removed; it tells the set-up, so
// that this holds after a restart.
func (b *balancer) whenRemoved(ctx context.Context, setup *setup.Machine, m *member.Membership, manager *service.Manager) {
	for m.Removed() == "" {
		if pause.About(ctx, time.Second) != nil {
			return
		}
	}

	b.env.Log.Error("this node was removed from the cluster; it serves no more")
	if setup != nil {
		setup.Remove()
	}

	for _, name := range []string{status.MasterService, status.BalancerService, status.APIService} {
		_ = manager.Restart(name) // they wait for ever then; one that is not enabled is not there
	}

	if !b.env.Settings.LB.Enabled {
		return
	}

	// Its process outlives a restart of its service: it is ended once the service waits.
	for !waiting(manager, status.BalancerService) {
		if pause.For(ctx, 100*time.Millisecond) != nil {
			return
		}
	}

	b.process(nil).Stop()
}

func waiting(manager *service.Manager, name string) bool {
	for _, i := range manager.Services(0) {
		if i.Name == name {
			return i.State == service.Waiting
		}
	}
	return false
}
