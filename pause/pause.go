// Package pause waits without outliving its reason.
package pause

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends: the error is then that of ctx.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
