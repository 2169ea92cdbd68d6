// Package oneatatime runs functions that may hang in the kernel, for example on a shared folder, so
// that a caller can stop waiting, and at most one of the functions hangs.
package oneatatime

import (
	"context"
	"fmt"
)

// Runner runs one function at a time, see [Do]. It is safe for concurrent use.
type Runner struct{ busy chan struct{} }

// New returns a runner without a running function.
func New() Runner { return Runner{make(chan struct{}, 1)} }

// Do calls f in another goroutine and returns the results of f. If ctx ends first, Do returns an
// error that wraps the error of ctx and names the action. f may still be running then, so it must
// not write to variables of its caller. The next function begins only after f has returned.
func Do[T any](ctx context.Context, r Runner, action string, f func() (T, error)) (T, error) {
	var none T
	select {
	case r.busy <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w", action, ctx.Err())
	}

	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-r.busy }()
		value, err := f()
		done <- result{value, err}
	}()

	select {
	case out := <-done:
		return out.value, out.err
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w", action, ctx.Err())
	}
}
