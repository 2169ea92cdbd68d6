package observe

import (
	"context"
	"sync/atomic"
	"time"

	"saltern/internal/pause"
)

const (
	clockEvery = 5 * time.Minute  // interval while the clock is synchronised: a synchronised clock stays so for hours
	clockSoon  = 20 * time.Second // interval while the clock is not synchronised
)

// clock stores whether the machine's clock is synchronised. It is nil while that is unknown. It is
// safe for concurrent use.
type clock struct{ atomic.Pointer[bool] }

// keepAsking asks for the state of the clock repeatedly until ctx ends.
func (c *clock) keepAsking(ctx context.Context, ask func(context.Context) (bool, error)) {
	for ctx.Err() == nil {
		// systemd may first have to start the service that answers.
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		yes, err := ask(limited)
		cancel()
		wait := clockSoon
		switch {
		case err != nil:
			c.Store(nil)
		case yes:
			wait = clockEvery
			fallthrough
		default:
			c.Store(&yes)
		}

		_ = pause.About(ctx, wait)
	}
}
