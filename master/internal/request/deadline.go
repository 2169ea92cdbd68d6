package request

import (
	"context"
	"sync"
	"time"
)

// deadline is context.WithTimeout for requests. Most of them never wait, so the timer starts when
// somebody asks for it. The zero value is not ready.
type deadline struct {
	context.Context // of the asker
	at              time.Time

	once   sync.Once
	timed  context.Context
	cancel context.CancelFunc
}

func (d *deadline) startTimer() {
	d.once.Do(func() { d.timed, d.cancel = context.WithDeadline(d.Context, d.at) })
}

func (d *deadline) Deadline() (time.Time, bool) {
	if at, ok := d.Context.Deadline(); ok && at.Before(d.at) {
		return at, true
	}
	return d.at, true
}

func (d *deadline) Done() <-chan struct{} {
	d.startTimer()
	return d.timed.Done()
}

func (d *deadline) Err() error {
	d.startTimer()
	return d.timed.Err()
}

// stopTimer cancels, as the cancel function of WithTimeout does.
func (d *deadline) stopTimer() {
	d.once.Do(func() { d.timed, d.cancel = endedContext, func() {} })
	d.cancel()
}

// endedContext is the context of a finished request that never started its timer.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
