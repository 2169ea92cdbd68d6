package salttools

import (
	"context"
	"fmt"

	"saltern/internal/control"
	"saltern/supervisor/api"
)

// Explain returns what this node's master knows of a minion. That master asks the other nodes where the
// minion is.
func (c Cluster) Explain(ctx context.Context, q control.ExplainQuestion) (control.Explanation, error) {
	if c.Masterless {
		return control.Explanation{}, fmt.Errorf("%w: this node is an arbiter and has no master; ask on another node",
			api.ErrState)
	}
	found, err := c.Own.Control.Explain(ctx, q)
	if err != nil {
		return found, fmt.Errorf("ask the master about the minion: %w; next: applianced status", err)
	}
	return found, nil
}
