package pyhost

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/internal/pyframe"
	"saltern/master/value"
)

//go:embed host.py
var program string

// Task is one task for a worker.
type Task struct {
	Request *value.Map    // passed to the program
	Limit   time.Duration // time limit, counted from when the task gets a slot; 0: no limit
}

// Stats are metrics: counters since the start, and current values.
type Stats struct {
	Workers  int     // running workers
	Sessions int     // open sessions
	Waiting  int     // tasks that wait for a slot
	Tasks    uint64  // tasks that have started
	Lost     uint64  // tasks whose worker ended without an answer
	Left     uint64  // tasks whose callers stopped waiting for a slot
	Seconds  float64 // duration of all tasks, including the start of a parent
	Waited   float64 // seconds that tasks waited for a slot
	Starts   uint64  // starts of parents
	Restarts uint64  // starts after a parent had died
	Renewals uint64  // starts because packages or files changed
	Running  bool    // a parent runs
}

// Host runs tasks. Create it with New, and Close it. All methods may be called concurrently.
type Host struct {
	cfg       Config
	places    *places
	orderTime time.Duration   // normally obeyTakes; shorter in tests
	killTime  time.Duration   // normally killTakes; shorter in tests
	ctx       context.Context // canceled by Close
	cancel    context.CancelCauseFunc
	// owned counts what Close waits for: tasks, sessions, and the goroutines of parents and their
	// starts.
	owned sync.WaitGroup

	number   atomic.Int64 // number of the last worker
	sessions atomic.Int64
	tasks    atomic.Uint64
	lost     atomic.Uint64
	nanos    atomic.Int64
	starts   atomic.Uint64
	restarts atomic.Uint64
	renewals atomic.Uint64

	mu       sync.Mutex
	closed   bool
	current  *parent      // nil: no parent runs
	starting *parentStart // nil: no parent is being started
	warm     warmth
	deaths   int // failed starts and deaths of parents since the last successful task
	// notBefore is the earliest time of the next start.
	notBefore time.Time
	failed    error // error of the last start; nil: the start succeeded
	idle      *time.Timer
}

// parentStart is one start of a parent. All tasks that wait for the start share it.
type parentStart struct {
	done   chan struct{}
	parent *parent
	err    error
}

// New returns a Host. No process starts before the first task.
func New(cfg Config) *Host {
	cfg.setDefaults()
	h := &Host{
		cfg:       cfg,
		places:    newPlaces(cfg.MaxWorkers, cfg.MaxComputing),
		orderTime: obeyTakes,
		killTime:  killTakes,
	}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	return h
}

// Close ends all tasks and processes, and returns when they have ended.
func (h *Host) Close() {
	h.mu.Lock()
	h.closed = true
	if h.idle != nil {
		h.idle.Stop()
	}
	h.mu.Unlock()
	h.cancel(errClosed)
	h.owned.Wait()
}

// Stats returns the current metrics.
func (h *Host) Stats() Stats {
	h.mu.Lock()
	running := h.current != nil && h.current.Alive()
	h.mu.Unlock()
	return Stats{
		Workers:  int(h.places.running.Load()),
		Sessions: int(h.sessions.Load()),
		Waiting:  int(h.places.waiting.Load()),
		Tasks:    h.tasks.Load(),
		Lost:     h.lost.Load(),
		Left:     h.places.left.Load(),
		Seconds:  time.Duration(h.nanos.Load()).Seconds(),
		Waited:   time.Duration(h.places.waited.Load()).Seconds(),
		Starts:   h.starts.Load(),
		Restarts: h.restarts.Load(),
		Renewals: h.renewals.Load(),
		Running:  running,
	}
}

// Do runs a task in a new worker and returns the program's reply. A reply may list under "warm" what
// the parents are to load in advance (see warmth). When ctx ends, the worker and everything that it has
// started are killed.
//
// The error matches ErrNoSalt or the error of ctx, or reports how the worker ended. If the task has
// certainly not begun, the error has a method NotBegun that returns true.
//
// Do does not limit the number of waiting callers; the callers must limit it.
func (h *Host) Do(ctx context.Context, t Task) (*value.Map, error) {
	asked := time.Now()
	if !h.countTask() {
		return nil, Unbegun(errClosed)
	}
	defer h.owned.Done()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(errClosed) })()

	place, err := h.places.waitPlace(ctx)
	if err != nil {
		return nil, Unbegun(err)
	}

	began := time.Now()
	defer func() { h.nanos.Add(int64(time.Since(began))) }()
	h.tasks.Add(1)
	if t.Limit > 0 {
		late := time.AfterFunc(t.Limit, func() { cancel(fmt.Errorf("it took longer than %s", t.Limit)) })
		defer late.Stop()
	}

	frame, err := packRequest(t.Request)
	var w *worker
	if err == nil {
		w, err = h.worker(ctx, asked)
	}

	if err != nil {
		place.leave()
		return nil, Unbegun(h.orClosed(err))
	}

	watching, stopWatching := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { watchComputing(watching, w.pid, place.stopComputing) })

	reply, begun, err := h.converse(ctx, cancel, w, frame)
	stopWatching()
	watcher.Wait()
	if err != nil {
		w.endWorker(errors.Is(err, errLost))
		if !begun && w.hasNotBegun() {
			err = Unbegun(err)
		}
	}

	h.finish(w, place.leave)
	switch {
	case err == nil:
		h.mu.Lock()
		h.deaths = 0
		h.mu.Unlock()
		h.learnWarm(w.parent, reply.Texts("warm"))
	case errors.Is(err, errLost):
		h.lost.Add(1)
		return nil, h.orClosed(w.endReason())
	}

	return reply, err
}

// orClosed returns errClosed if Close has been called, because Close may have caused err. Otherwise
// it returns err.
func (h *Host) orClosed(err error) error {
	if h.ctx.Err() != nil {
		return errClosed
	}
	return err
}

func packRequest(request *value.Map) ([]byte, error) {
	frame, err := pyframe.Append(nil, request)
	if err != nil {
		return nil, fmt.Errorf("pack the request: %w", err)
	}
	if len(frame) > maxRequest {
		return nil, fmt.Errorf("the request has %d bytes, %d are allowed", len(frame), maxRequest)
	}
	return frame, nil
}

// countTask registers a task for which Close must wait. It returns false if Close has already been
// called.
func (h *Host) countTask() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.owned.Add(1)
	}
	return !h.closed
}

// worker forks a worker from a parent whose files have not changed. arrived is the time at which
// the task arrived. If the process is lost before it has received its request, worker forks another
// process. That is safe, because the task has not begun.
func (h *Host) worker(ctx context.Context, arrived time.Time) (*worker, error) {
	for try := 1; ; try++ {
		p, err := h.parent(ctx)
		if err != nil {
			return nil, err
		}

		w, err := p.forkWorker(h.number.Add(1), arrived)
		if err != nil {
			h.forget(p)
			if try < maxTries {
				continue
			}
			return nil, err
		}

		if !w.waitOver(w.forkDone, h.orderTime) {
			h.stopHanging(p)
		}

		hello, err := h.readHello(ctx, w)
		if err == nil && !hello.Bool("stale") {
			p.noteUnchanged(w)
			w.pid, _ = hello.Int("pid")
			return w, nil
		}

		if err != nil {
			w.endWorker(errors.Is(err, errLost))
		}

		h.finish(w, func() {})
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil:
			h.replaceParent(p, "files of Salt's library have changed")
			continue // fork from a new parent, which reads the changed files
		case errors.Is(err, errLost):
			err = w.endReason()
		default:
			return nil, err
		}

		if try == maxTries {
			return nil, err
		}
	}
}

// stopHanging kills a parent that does not obey.
func (h *Host) stopHanging(p *parent) {
	h.cfg.Log.Error("the Python that starts others hangs; it is replaced", "pid", p.PID())
	if h.hasWarmed(p) {
		h.stopWarming("it hangs", "an import, perhaps")
	}
	p.Stop(0)
}

// readHello reads a worker's first message, which reports whether its parent's files have changed.
func (h *Host) readHello(ctx context.Context, w *worker) (*value.Map, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, beginTakes, errSlow)
	defer cancel()
	return w.readAnswer(ctx, 1<<10)
}

// converse sends a task to a worker and returns the worker's answer. The worker must report within
// beginTakes that the task has begun; otherwise converse calls cancel, which ends the worker. begun means
// that a message of the worker has arrived.
func (h *Host) converse(
	ctx context.Context,
	cancel context.CancelCauseFunc,
	w *worker,
	frame []byte,
) (reply *value.Map, begun bool, err error) {
	slow := time.AfterFunc(beginTakes, func() { cancel(errSlow) })
	defer slow.Stop()
	if err := w.sendRequest(ctx, frame); err != nil {
		return nil, false, err
	}
	reply, err = w.readAnswer(ctx, maxAnswer+1<<10)
	if err != nil {
		return nil, false, err
	}
	if reply.Bool("begun") {
		slow.Stop()
		reply, err = w.readAnswer(ctx, maxAnswer+1<<10)
	}
	return reply, true, err
}

// finish waits up to killTime for a worker's end. The worker's slot becomes free when the worker
// has ended, even if finish has already returned.
func (h *Host) finish(w *worker, leave func()) {
	ended := make(chan struct{})
	h.owned.Go(func() { // this goroutine waits until the worker or its parent has ended; Close ends both processes
		defer close(ended)
		select {
		case <-w.ended:
		case <-w.parent.gone:
		}

		w.conn.Close()
		leave()
		h.release(w.parent)
	})

	select {
	case <-ended:
	// If the kernel has not ended the worker after this time, the slot remains occupied until the
	// worker's end. A parent that hangs could not report the end.
	case <-time.After(h.killTime):
		h.cfg.Log.Error("a Python does not end when it is killed; its place is not free until then", "pid",
			w.parent.PID())
		h.owned.Go(func() { // this goroutine ends within orderTime
			if !w.orderKill(h.orderTime) {
				h.stopHanging(w.parent)
			}
		})
	}
}

// release stops the parent p if it is retired and has no workers, and restarts the idle timer. Call
// it when a worker of p has ended.
func (h *Host) release(p *parent) {
	p.mu.Lock()
	stop := p.retired && len(p.workers) == 0
	p.mu.Unlock()

	if stop {
		p.Stop(stopTakes)
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}

	if h.idle == nil {
		h.idle = time.AfterFunc(h.cfg.Idle, h.stopIdle)
	}

	h.idle.Reset(h.cfg.Idle)
}

// stopIdle stops the parent if no task has run for Config.Idle.
func (h *Host) stopIdle() {
	h.mu.Lock()
	p := h.current
	idle := p != nil && p.workerCount() == 0
	if idle {
		h.current = nil
	}
	h.mu.Unlock()
	if idle {
		h.retire(p)
	}
}
