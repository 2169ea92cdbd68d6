package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Backlog runs tasks that nobody would submit again if they were lost. It starts them in the order
// of their arrival, and runs a bounded number at once.
//
// Overflow policy: Put waits until the backlog has capacity for the task and its bytes. Backlog is
// safe for concurrent use.
type Backlog struct {
	cfg  BacklogConfig
	ctx  context.Context // cancelled by Close
	stop context.CancelFunc
	room *semaphore.Weighted

	mu      sync.Mutex
	waiting []task
	closed  bool
	stats   BacklogStats
	workers sync.WaitGroup
}

// BacklogConfig configures a Backlog. All fields are required.
type BacklogConfig struct {
	Workers int // number of tasks that may run at once
	Depth   int // number of tasks that may wait
	Now     func() time.Time
}

// backlogBytes bounds the memory of the waiting tasks of one Backlog.
const backlogBytes = 64 << 20

type task struct {
	since time.Time
	bytes int64
	do    func(ctx context.Context)
}

// BacklogStats are counters since the start. Waiting, Running and Oldest are current values.
type BacklogStats struct {
	Waiting, Running int
	Oldest           time.Duration // how long the first task in the queue has waited
	Done             uint64
	Waited           time.Duration // total waiting time of all started tasks
}

// errClosed is returned by Put after Close.
var errClosed = errors.New("the master stops")

// NewBacklog returns a Backlog.
func NewBacklog(cfg BacklogConfig) *Backlog {
	b := &Backlog{cfg: cfg, room: semaphore.NewWeighted(backlogBytes)}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Put adds a task. size is the approximate number of bytes that the task holds while it waits. If
// Put returns an error, the task will not run, because ctx or the master has ended.
func (b *Backlog) Put(ctx context.Context, size int, work func(ctx context.Context)) error {
	least := int64(backlogBytes / max(b.cfg.Depth, 1))
	t := task{bytes: min(max(int64(size), least, 1), backlogBytes), do: work}
	if err := b.room.Acquire(ctx, t.bytes); err != nil {
		return err
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		b.room.Release(t.bytes)
		return errClosed
	}

	t.since = b.cfg.Now()
	b.waiting = append(b.waiting, t)
	if b.stats.Running < b.cfg.Workers {
		b.stats.Running++
		b.workers.Go(b.runTasks)
	}

	return nil
}

// runTasks runs tasks until the queue is empty.
func (b *Backlog) runTasks() {
	for {
		t, ok := b.nextTask()
		if !ok {
			return
		}
		t.do(b.ctx)
		b.mu.Lock()
		b.stats.Done++
		b.mu.Unlock()
	}
}

// nextTask removes and returns the first task. If there is none, it returns false, and the worker
// that called it must end.
func (b *Backlog) nextTask() (task, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.waiting) == 0 {
		b.stats.Running--
		return task{}, false
	}

	t := b.waiting[0]
	b.waiting[0] = task{}
	b.waiting = b.waiting[1:]
	b.stats.Waited += b.cfg.Now().Sub(t.since)
	b.room.Release(t.bytes)
	return t, true
}

// Stats returns the counters.
func (b *Backlog) Stats() BacklogStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Waiting = len(b.waiting)
	if s.Waiting > 0 {
		s.Oldest = b.cfg.Now().Sub(b.waiting[0].since)
	}
	return s
}

// Close cancels the running tasks and waits for their end. It returns how many tasks were not
// started.
func (b *Backlog) Close() (left int) {
	b.mu.Lock()
	b.closed = true
	left = len(b.waiting)
	b.mu.Unlock()
	b.stop()
	b.workers.Wait()
	return left
}
