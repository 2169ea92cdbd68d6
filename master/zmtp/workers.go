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
// goroutine, and is refused after it. A task that waits for something else itself
// leaves its place meanwhile, see Account.Park.
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

// startTask starts a task; it returns before the task is done. The caller must not
// call it after close.
func (w *workers) startTask(ctx context.Context, task func()) error {
	select {
	case w.tasks <- task:
		return nil
	default:
	}

	select {
	case w.slots <- struct{}{}:
		w.group.Go(func() { w.runTasks(task) })
		return nil
	default:
	}

	t := time.NewTimer(w.wait)
	defer t.Stop()
	select {
	case w.tasks <- task:
		return nil
	case w.slots <- struct{}{}:
		w.group.Go(func() { w.runTasks(task) })
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return errBusy
	}
}

// leavePlace gives the place of a task that waits to another one. So many goroutines as wait
// are there besides.
func (w *workers) leavePlace() { <-w.slots }

// takePlace takes a place again before the task goes on, that of an idle worker if need be.
func (w *workers) takePlace() {
	select {
	case w.slots <- struct{}{}:
	case w.tasks <- nil:
	}
}

func (w *workers) runTasks(task func()) {
	t := time.NewTimer(workerIdle)
	defer t.Stop()
	for task != nil {
		task()
		t.Reset(workerIdle)
		select {
		case task = <-w.tasks:
			continue
		case <-t.C:
		case <-w.stop:
		}

		<-w.slots
		return
	}
	// The place went to whoever gave no task.
}

// close ends idle workers at once, busy ones after their task, and waits.
func (w *workers) close() {
	close(w.stop)
	w.group.Wait()
}
