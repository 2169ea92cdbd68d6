package life

import (
	"context"
	"errors"
	"path/filepath"

	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/internal/vip"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// End stops the processes that an earlier life has left running, such as the load balancer.
func End(ctx context.Context, cfg *settings.Settings) error {
	lb := service.Lasting{
		PIDFile:     child.PIDFile(cfg, status.BalancerService),
		Pipe:        filepath.Join(cfg.RuntimeDir, status.BalancerService+".out"),
		StopTimeout: cfg.Limits.StopTimeout,
	}
	lb.Stop()
	master := service.Process{PIDFile: child.PIDFile(cfg, status.MasterService)}
	address := vip.Daemon{Dir: filepath.Join(cfg.RuntimeDir, "vip")}
	api := service.Process{PIDFile: child.PIDFile(cfg, status.APIService)}
	return errors.Join(api.KillStale(ctx), master.KillStale(ctx), address.KillStale(ctx))
}
