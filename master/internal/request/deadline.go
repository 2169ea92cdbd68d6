package request

import (
	"context"
	"sync"
	"time"
)

// deadline is a context with a time-out. Unlike context.WithTimeout it starts a timer only at the
// first call of Done or Err, because most requests call neither. The fields Context and at must be
// set.
type deadline struct {
	context.Context // parent context
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

// stopTimer ends the context and its timer.
func (d *deadline) stopTimer() {
	d.once.Do(func() { d.timed, d.cancel = endedContext, func() {} })
	d.cancel()
}

// endedContext is a cancelled context. It replaces the context of a finished request that never
// started its timer.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
