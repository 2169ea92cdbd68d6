package salttools

import (
	"context"
	"fmt"

	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

// Schedule returns the masters' schedule. It asks this node's master, which also knows the runs on
// the master that owns the schedule.
func (c Cluster) Schedule(ctx context.Context) (status.Schedule, error) {
	if c.Masterless {
		return status.Schedule{}, fmt.Errorf("%w: this node is an arbiter and has no master; ask on another node",
			api.ErrState)
	}
	s, err := c.Own.Control.Schedule(ctx)
	if err != nil {
		return status.Schedule{}, fmt.Errorf("ask the master for its schedule: %w; next: applianced status", err)
	}
	return status.Schedule{Schema: status.Schema, Schedule: s}, nil
}
