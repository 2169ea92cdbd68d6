package member

import (
	"context"
	"log/slog"
	"time"

	"saltern/internal/pause"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// Retirement stops the services of a node that was removed from its cluster.
type Retirement struct {
	Membership interface{ Removed() string }
	Services   interface{ Restart(name string) error }
	Setup      *setup.Machine // may be nil: the node was configured by hand
	Balancer   interface{ Info() service.Info }
	Process    interface{ Stop() } // stops the load balancer; may be nil: this node has none
	Log        *slog.Logger
}

// Run waits until the node is removed, and then stops its services. It also informs the set-up, so
// that the services stay stopped after a restart.
func (r Retirement) Run(ctx context.Context) {
	for r.Membership.Removed() == "" {
		if pause.About(ctx, time.Second) != nil {
			return
		}
	}

	r.Log.Error("this node was removed from the cluster; it serves no more")
	if r.Setup != nil {
		r.Setup.Remove()
	}

	// Each service then waits until this process ends, see [Membership.Belongs]. A service that is
	// not enabled does not exist.
	for _, name := range []string{status.MasterService, status.BalancerService, status.APIService} {
		_ = r.Services.Restart(name)
	}

	if r.Process == nil {
		return
	}

	// The load balancer's process outlives a restart of its service. Before stopping the process,
	// wait until the service waits for its condition: then it starts no other process.
	for r.Balancer.Info().State != service.Waiting {
		if pause.For(ctx, 100*time.Millisecond) != nil {
			return
		}
	}

	r.Process.Stop()
}
