// Package oneatatime runs functions that may hang in the kernel, as on a shared folder,
// so that whoever waits for one can give up, and never more than one of them hangs.
package oneatatime

import (
	"context"
	"fmt"
)

// Runner runs one function at a time. Its methods are safe for concurrent use.
type Runner struct{ busy chan struct{} }

// New returns a runner that is free.
func New() Runner { return Runner{make(chan struct{}, 1)} }

// Do calls f in a goroutine of its own. When ctx ends first, Do returns its error together
// with what, which names the act. f may still run then, and the next function begins when it
// has returned.
func (r Runner) Do(ctx context.Context, what string, f func()) error {
	select {
	case r.busy <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}

	done := make(chan struct{})
	go func() {
		defer func() { <-r.busy }()
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
