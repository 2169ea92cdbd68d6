package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"saltern/internal/pause"
	"saltern/internal/printable"
)

// follower watches an action that all nodes carry out one after another. The action does not depend
// on the follower.
type follower[P any] struct {
	ask    func(ctx context.Context) (P, error)
	state  func(p P) (lines []string, running bool)
	failed func(last P, err error) error // returns the error after a failed request, or after the end of ctx
	every  time.Duration
	steps  io.Writer // each step is written here when it becomes known
}

// followToEnd prints the steps until the action has ended, and returns its last state.
func (f follower[P]) followToEnd(ctx context.Context) (last P, err error) {
	for printed := 0; ; {
		now, err := f.ask(ctx)
		if err == nil {
			err = ctx.Err()
		}

		if err != nil {
			return last, f.failed(last, err)
		}

		last = now
		lines, running := f.state(now)
		for ; printed < len(lines); printed++ {
			fmt.Fprintln(f.steps, printable.Clean(lines[printed]))
		}

		if !running {
			return last, nil
		}

		if err := pause.For(ctx, f.every); err != nil {
			return last, f.failed(last, err)
		}
	}
}
