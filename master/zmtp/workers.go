package zmtp

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errBusy = errors.New("zmtp: no worker came free in time")

// workers runs tasks on at most max goroutines. They are started on demand
// and stay for a while, so that their stacks stay grown; connections keep
// small ones.
//
// Overflow policy: a task waits for a worker up to a deadline, in its caller's
// goroutine, and is refused after it.
type workers struct {
	wait  time.Duration
	slots chan struct{} // one token per running worker
	tasks chan func()   // handed to idle workers, unbuffered
	stop  chan struct{}
	group sync.WaitGroup
}

// workerIdle is how long a worker without work stays.
const workerIdle = 5 * time.Second

func newWorkers(max int, wait time.Duration) *workers {
	return &workers{wait: wait, slots: make(chan struct{}, max),
		tasks: make(chan func()), stop: make(chan struct{})}
}

// do starts a task; it returns before the task is done. The caller must not
// call it after close.
func (w *workers) do(ctx context.Context, task func()) error {
	select {
	case w.tasks <- task:
		return nil
	default:
	}
	select {
	case w.slots <- struct{}{}:
		w.group.Go(func() { w.run(task) })
		return nil
	default:
	}
	t := time.NewTimer(w.wait)
	defer t.Stop()
	select {
	case w.tasks <- task:
		return nil
	case w.slots <- struct{}{}:
		w.group.Go(func() { w.run(task) })
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return errBusy
	}
}

func (w *workers) run(task func()) {
	defer func() { <-w.slots }()
	t := time.NewTimer(workerIdle)
	defer t.Stop()
	for {
		task()
		t.Reset(workerIdle)
		select {
		case task = <-w.tasks:
		case <-t.C:
			return
		case <-w.stop:
			return
		}
	}
}

// close ends idle workers at once, busy ones after their task, and waits.
func (w *workers) close() {
	close(w.stop)
	w.group.Wait()
}
