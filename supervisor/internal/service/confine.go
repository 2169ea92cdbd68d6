package service

import (
	"context"
	"sync"
	"time"

	"saltern/internal/pause"
)

// confineAgain gives the pauses after a process could not be confined: short ones while
// the machine starts and systemd is busy, then half a minute.
func confineAgain() Backoff {
	return Backoff{Min: 2 * time.Second, Max: 30 * time.Second, Factor: 2}
}

// keepConfined confines a process; what fails is tried again until it is done or the
// function that is returned is called, which waits for the try under way. When ctx has
// ended already nothing is tried: whoever comes next does it.
func keepConfined(ctx context.Context, confine func(context.Context, int) error, pid int) (end func()) {
	if confine == nil || ctx.Err() != nil || confine(ctx, pid) == nil {
		return func() {}
	}

	ctx, cancel := context.WithCancel(ctx)
	var tries sync.WaitGroup
	tries.Go(func() {
		pauses := newPauser(confineAgain())
		for pause.For(ctx, pauses.pauseAfter(0)) == nil && confine(ctx, pid) != nil {
		}
	})

	return func() {
		cancel()
		tries.Wait()
	}
}
