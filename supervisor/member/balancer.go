package member

import (
	"context"
	"maps"
	"slices"
	"time"
)

// drain has our load balancer drain the masters of nodes that are drained or
// leave. What an administrator drained there by hand stays.
func (m *Member) drain(ctx context.Context) {
	if !m.cfg.Settings.LB.Enabled {
		return
	}
	want := map[string]bool{}
	for _, o := range m.Settings().Members {
		want[o.Name] = o.Draining
	}
	if len(m.drained) == 0 && !slices.Contains(slices.Collect(maps.Values(want)), true) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := m.cfg.Balancer.Status(ctx)
	if err != nil {
		return // seen elsewhere
	}
	for _, b := range st.Backends {
		switch {
		case want[b.Name] && !b.Drain:
			err = m.cfg.Balancer.Drain(ctx, b.Name)
		case !want[b.Name] && b.Drain && m.drained[b.Name]:
			err = m.cfg.Balancer.Undrain(ctx, b.Name)
		}
		if err != nil {
			m.cfg.Log.Warn("drain", "peer", b.Name, "error", err)
			return
		}
		if want[b.Name] {
			m.drained[b.Name] = true
		} else {
			delete(m.drained, b.Name)
		}
	}
}
