// Package pause waits for a time, or until a context ends.
package pause

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends; then it returns the error of ctx.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// together is the grid, in time, on which the waits of [About] end.
const together = 250 * time.Millisecond

// About waits like [For], for loops that poll as long as the process lives. A wait of a second or
// more ends up to a quarter of a second early, so that it ends together with the waits of other
// loops: each time that a process wakes up costs some 0.15 ms.
func About(ctx context.Context, d time.Duration) error {
	if d >= time.Second {
		end := time.Now().Add(d)
		d -= end.Sub(end.Truncate(together))
	}
	return For(ctx, d)
}
