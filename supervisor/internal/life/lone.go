package life

import (
	"context"
	"fmt"
)

// lone does one thing at a time that may hang in the kernel, as on a shared folder.
type lone struct{ busy chan struct{} }

func newLone() lone { return lone{make(chan struct{}, 1)} }

// do calls f in a goroutine of its own. The error is that of ctx, with what was being
// done; f may then still be at it, and nothing else begins until it is done.
func (l lone) do(ctx context.Context, what string, f func()) error {
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}

	done := make(chan struct{})
	go func() {
		defer func() { <-l.busy }()
		defer close(done)
		f()
	}()

	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
}
