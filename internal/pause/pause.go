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

// together is how far apart the ends of [About] are.
const together = 250 * time.Millisecond

// About is For for a loop that looks at something again and again as long as the
// process lives. A wait of a second or more ends up to a quarter of a second early,
// at the same moment as those of other loops: a process that wakes up costs some
// 0.15 ms, whatever it does then.
func About(ctx context.Context, d time.Duration) error {
	if d >= time.Second {
		end := time.Now().Add(d)
		d -= end.Sub(end.Truncate(together))
	}
	return For(ctx, d)
}
