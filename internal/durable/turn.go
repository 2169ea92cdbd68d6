package durable

import (
	"context"
	"time"
)

// InTurn calls do, which works with files, when nobody else has the turn, and waits for it for a bounded time. turn
// is a channel for one element. If the file system hangs, the goroutine that calls do hangs alone and keeps the
// turn, and everybody else gets silent: do may have done its work, or do it later.
func InTurn(ctx context.Context, turn chan struct{}, limit time.Duration, silent error, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return silent
	}

	done := make(chan error, 1)
	go func() {
		err := do()
		<-turn
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return silent
	}
}
