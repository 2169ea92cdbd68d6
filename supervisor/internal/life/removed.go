package life

import (
	"context"
	"time"

	"saltern/internal/pause"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
)

// stopWhenRemoved stops the services of a node that was removed. It tells the set-up, so
// that this holds after a restart.
func (n *Life) stopWhenRemoved(ctx context.Context) {
	for n.cluster.Removed() == "" {
		if pause.About(ctx, time.Second) != nil {
			return
		}
	}

	n.cfg.Log.Error("this node was removed from the cluster; it serves no more")
	if n.cfg.Setup != nil {
		n.cfg.Setup.Remove()
	}

	for _, name := range []string{status.MasterService, status.BalancerService, status.APIService} {
		_ = n.manager.Restart(name) // they wait for ever then; one that is not enabled is not there
	}

	if !n.cfg.Settings.LB.Enabled {
		return
	}

	// The balancer's process outlives a restart of its service. Stop it once the service waits.
	for n.named(status.BalancerService).Info().State != service.Waiting {
		if pause.For(ctx, 100*time.Millisecond) != nil {
			return
		}
	}

	n.balancer.Stop()
}
