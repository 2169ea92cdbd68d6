package member

import (
	"context"
	"maps"
	"slices"
	"time"

	"saltern/lbproxy"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/settings"
)

// drains tells the load balancer to drain the masters of nodes that are drained or leave, and later
// to end the draining. A backend that an administrator drained by hand stays drained.
type drains struct {
	env      Env
	balancer *lbproxy.Client
	worker   service.Worker
	drained  map[string]bool // the masters that drains has drained; only the worker uses it
}

// reconcile compares the load balancer with members once, and corrects it.
func (d *drains) reconcile(ctx context.Context, members []settings.Member) {
	if !d.env.Settings.LB.Enabled {
		return
	}

	want := map[string]bool{}
	for _, o := range members {
		want[o.Name] = o.Draining
	}

	if len(d.drained) == 0 && !slices.Contains(slices.Collect(maps.Values(want)), true) {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := d.balancer.Status(ctx)
	if err != nil {
		return // another part reports that the load balancer does not answer
	}

	for _, b := range st.Backends {
		switch {
		case want[b.Name] && !b.Drain:
			err = d.balancer.Drain(ctx, b.Name)
		case !want[b.Name] && b.Drain && d.drained[b.Name]:
			err = d.balancer.Undrain(ctx, b.Name)
		}

		if err != nil {
			d.env.Log.Warn("drain", "peer", b.Name, "error", err)
			return
		}

		if want[b.Name] {
			d.drained[b.Name] = true
		} else {
			delete(d.drained, b.Name)
		}
	}
}
