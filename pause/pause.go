// Package pause waits without outliving its reason.
package pause

import (
	"context"
	"time"
)

// together is how far apart the ends of long waits are. A process that wakes up does
// so for some 0.15 ms of a processor, whatever it does then, and most of ours have
// many things to look at every second or two.
const together = 250 * time.Millisecond

// For waits for d, or until ctx ends: the error is then that of ctx. A wait of a
// second or more ends up to a quarter of a second early, together with others.
func For(ctx context.Context, d time.Duration) error {
	if d >= time.Second {
		end := time.Now().Add(d)
		d -= end.Sub(end.Truncate(together))
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
