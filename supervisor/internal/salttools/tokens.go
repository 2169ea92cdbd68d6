package salttools

import (
	"context"
	"errors"
	"fmt"

	"saltern/internal/control"
	"saltern/supervisor/api"
)

// Tokens returns the present log-ins. It asks only one master, because the masters of a cluster
// share their tokens.
func (c Cluster) Tokens(ctx context.Context) (control.Tokens, error) {
	return c.Own.Control.Tokens(ctx)
}

// RevokeTokens revokes the tokens that r selects.
func (c Cluster) RevokeTokens(ctx context.Context, r control.Revocation) (control.Revoked, error) {
	if err := r.Check(); err != nil {
		return control.Revoked{}, fmt.Errorf("%w: %w", api.ErrState, err)
	}
	out, err := c.Own.Control.RevokeTokens(ctx, r)
	if errors.Is(err, control.ErrNoSuchToken) {
		return out, fmt.Errorf("%w: nothing was done: there is no such log-in; next: applianced tokens", api.ErrState)
	}
	return out, err
}
