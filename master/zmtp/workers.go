package zmtp

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errBusy = errors.New("zmtp: no worker came free in time")

// workers runs tasks on at most max goroutines. A goroutine starts on demand and waits for further
// tasks for workerIdle, so that later tasks reuse its grown stack and the stacks of connections'
// goroutines do not grow. startTask waits for a free worker up to a deadline, and after that
// refuses the task. A task that waits releases its slot meanwhile; see Account.Park.
type workers struct {
	wait  time.Duration
	slots chan struct{} // has an element for each running worker
	tasks chan func()   // tasks for idle workers, unbuffered
	stop  chan struct{}
	group sync.WaitGroup
}

// workerIdle is how long a worker waits for the next task before it ends.
const workerIdle = 5 * time.Second

func newWorkers(max int, wait time.Duration) *workers {
	return &workers{wait: wait, slots: make(chan struct{}, max),
		tasks: make(chan func()), stop: make(chan struct{})}
}

// startTask passes a task to a worker and returns before the task is done. It returns errBusy when
// no worker became free in time. The caller must not call startTask after close.
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

// leavePlace releases the slot of the calling task, so that another task runs while the calling
// task waits. The number of goroutines grows by the number of waiting tasks.
func (w *workers) leavePlace() { <-w.slots }

// takePlace waits until the calling task may continue: until fewer than max tasks run, or an idle
// worker ends and leaves its slot to the task.
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
	// The worker leaves its slot to a caller of takePlace.
}

// close ends idle workers at once and busy ones after their task, and waits for them.
func (w *workers) close() {
	close(w.stop)
	w.group.Wait()
}
