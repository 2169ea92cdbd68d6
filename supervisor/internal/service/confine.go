package service

import (
	"context"
	"sync"
	"time"

	"saltern/internal/pause"
)

// confineAgain returns the pauses after a failed try to confine a process. They begin short, for a
// systemd that is busy while the machine starts, and grow to half a minute.
func confineAgain() Backoff {
	return Backoff{Min: 2 * time.Second, Max: 30 * time.Second, Factor: 2}
}

// keepConfined confines a process. If a try fails, it repeats the try until one succeeds, or until
// the caller calls end, which waits for a running try. If ctx has ended already, it tries nothing:
// the next life of the supervisor will confine the process.
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
