package service

import (
	"context"
	"sync"
	"time"

	"saltern/pause"
)

// confineAgain is the pause after a process could not be confined, as while the
// machine starts and systemd is busy.
const confineAgain = 30 * time.Second

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
		for pause.For(ctx, confineAgain) == nil && confine(ctx, pid) != nil {
		}
	})
	return func() {
		cancel()
		tries.Wait()
	}
}
