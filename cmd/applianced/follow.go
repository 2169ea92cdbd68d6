package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"saltern/internal/pause"
	"saltern/internal/printable"
)

// follower is how something is followed that all nodes do one after another, and that
// goes on without whoever looks.
type follower[P any] struct {
	ask    func(ctx context.Context) (P, error)
	state  func(p P) (lines []string, running bool)
	failed func(last P, err error) error // what to say of a question that failed, or of the end of ctx
	every  time.Duration
	steps  io.Writer // where lines are told as they come
}

// followToEnd returns when it has ended.
func (f follower[P]) followToEnd(ctx context.Context) (last P, err error) {
	for told := 0; ; {
		now, err := f.ask(ctx)
		if err == nil {
			err = ctx.Err()
		}

		if err != nil {
			return last, f.failed(last, err)
		}

		last = now
		lines, running := f.state(now)
		for ; told < len(lines); told++ {
			fmt.Fprintln(f.steps, printable.Clean(lines[told]))
		}

		if !running {
			return last, nil
		}

		if err := pause.For(ctx, f.every); err != nil {
			return last, f.failed(last, err)
		}
	}
}
