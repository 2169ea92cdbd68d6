// Package oneatatime runs functions that may hang in the kernel, for example on a shared folder, so
// that a caller can stop waiting, and at most one of the functions hangs.
package oneatatime

import (
	"context"
	"fmt"
)

// Runner runs one function at a time. Its methods are safe for concurrent use.
type Runner struct{ busy chan struct{} }

// New returns a runner without a running function.
func New() Runner { return Runner{make(chan struct{}, 1)} }

// Do calls f in another goroutine. If ctx ends first, Do returns an error that wraps the error of
// ctx and names the action, what. f may still be running then, and the next function begins only
// when f has returned.
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
