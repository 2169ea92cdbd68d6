package pyhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"saltern/master/internal/pyfork"
	"saltern/master/internal/pyframe"
	"saltern/master/value"
)

// parent is a running Python that forks workers.
type parent struct {
	*pyfork.Parent
	layer string        // of packages that it was started with
	gone  chan struct{} // closed when it says nothing any more

	mu      sync.Mutex
	workers map[int64]*worker
	checked time.Time // since when, at least, its files have been those on disk
	retired bool      // no more tasks for it
}

// worker is one forked process, for one task.
type worker struct {
	parent     *parent
	number     int64
	conn       *net.UnixConn
	check      bool           // it compares the parent's files with those on disk
	forked     time.Time      // not before then
	forkDone   chan struct{}  // closed when the parent has forked it
	killDone   chan struct{}  // closed when the parent has killed it
	ended      chan struct{}  // closed when it has ended, with all that it has started
	endMessage pyfork.Message // it has ended
	killedByUs bool           // by us; for the goroutine that does the task
}

// forkWorker makes a worker for a task that was asked for at a time. It must be finished. It
// looks whether files have changed unless another one has done so since.
func (p *parent) forkWorker(number int64, asked time.Time) (*worker, error) {
	ours, theirs, err := pyfork.SocketPair(unix.SOCK_STREAM)
	if err != nil {
		return nil, fmt.Errorf("make a worker's socket: %w", err)
	}
	defer theirs.Close()

	w := &worker{
		parent:   p,
		number:   number,
		conn:     ours,
		forked:   time.Now(),
		forkDone: make(chan struct{}),
		killDone: make(chan struct{}),
		ended:    make(chan struct{}),
	}

	p.mu.Lock()
	w.check = !p.checked.After(asked)
	p.workers[number] = w
	p.mu.Unlock()

	if err := p.Order(value.NewMap("op", "fork", "worker", number, "check", w.check), theirs); err != nil {
		p.mu.Lock()
		delete(p.workers, number)
		p.mu.Unlock()
		ours.Close()
		return nil, errors.Join(errLost, err)
	}

	return w, nil
}

// listen hears what the parent says until it ends.
func (p *parent) listen(threads func(names string)) {
	defer close(p.gone)
	for {
		m, err := p.Receive()
		if err != nil {
			return
		}
		if m.Op == "threads" {
			threads(m.Error)
			continue
		}

		p.mu.Lock()
		w := p.workers[m.Worker]
		if m.Op == "ended" {
			delete(p.workers, m.Worker)
		}
		p.mu.Unlock()

		switch {
		case w == nil:
		case m.Op == "forked":
			closeOnce(w.forkDone)
		case m.Op == "ended":
			w.endMessage = m
			close(w.ended)
		case m.Op == "killing":
			closeOnce(w.killDone)
		}
	}
}

// closeOnce closes a channel that only the caller's goroutine closes, unless it did so
// before: what a parent says is not trusted to be said once.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// noteUnchanged notes that a worker has found the files unchanged.
func (p *parent) noteUnchanged(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.check && w.forked.After(p.checked) {
		p.checked = w.forked
	}
}

// workerCount reports how many workers there are.
func (p *parent) workerCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers)
}

// errLost says that a worker, or its parent, ended without an answer.
var errLost = errors.New("the Python ended")

// readAnswer reads the next answer, until ctx ends.
func (w *worker) readAnswer(ctx context.Context, most int) (*value.Map, error) {
	defer context.AfterFunc(ctx, func() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) })()
	packed, err := pyframe.Read(w.conn, most)
	switch {
	case err == nil:
		return pyframe.Map(packed)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, errors.Join(errLost, err)
}

// sendRequest sends the request, until ctx ends.
func (w *worker) sendRequest(ctx context.Context, frame []byte) error {
	defer context.AfterFunc(ctx, func() { _ = w.conn.SetWriteDeadline(time.Unix(1, 0)) })()
	_, err := w.conn.Write(frame)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errors.Join(errLost, err)
}

// endWorker ends the worker, with all that it has started. One that is lost gets a moment to end
// by itself, for the sake of its exit status. A parent that does not obey is killed.
func (w *worker) endWorker(lost bool) {
	if lost && w.waitOver(w.killDone, lostTakes) {
		return
	}
	w.killedByUs = true
	_ = w.parent.Order(value.NewMap("op", "kill", "worker", w.number), nil) // it is told, or gone
	if !w.waitOver(w.killDone, obeyTakes) {
		w.parent.Stop(0)
	}
}

// waitOver waits until the parent has done what it was told, the worker has ended, or has lost
// its parent.
func (w *worker) waitOver(told <-chan struct{}, most time.Duration) bool {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-told:
	case <-w.ended:
	case <-w.parent.gone:
	case <-t.C:
		return false
	}
	return true
}

// endReason says how a worker ended that has given no answer.
func (w *worker) endReason() error {
	select {
	case <-w.ended:
	default:
		return errors.New("the Python that had started it died; what it had done by then is done")
	}

	status := syscall.WaitStatus(w.endMessage.Status)
	switch {
	case w.endMessage.Error != "":
		return errors.New(w.endMessage.Error)
	case w.killedByUs:
		return errors.New("it closed what it was to answer by")
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		return errors.New("its process was killed; the kernel does that when memory is short")
	case status.Signaled():
		return fmt.Errorf("its process was ended by the signal %d (%s)", status.Signal(), status.Signal())
	}

	return fmt.Errorf("it ended its process with exit status %d, and returned nothing", status.ExitStatus())
}
