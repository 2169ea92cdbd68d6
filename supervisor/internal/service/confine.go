package service

import (
	"context"
	"time"

	"saltern/pause"
)

// confineAgain is the pause after a process could not be confined, as while the
// machine starts and systemd is busy.
const confineAgain = 30 * time.Second

// keepConfined confines a process; what fails is tried again until it is done or the
// function that is returned is called, which waits for the try under way.
func keepConfined(ctx context.Context, confine func(context.Context, int) error, pid int) (end func()) {
	if confine == nil || confine(ctx, pid) == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause.For(ctx, confineAgain) == nil && confine(ctx, pid) != nil {
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
