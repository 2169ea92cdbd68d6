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

// parent is a running Python process that forks workers.
type parent struct {
	*pyfork.Parent
	layer string        // folder of Python packages with which it was started
	gone  chan struct{} // closed when listen has read its last message

	mu      sync.Mutex
	workers map[int64]*worker
	checked time.Time // when its files were last known to be the same on the disk
	retired bool      // no more tasks go to it
}

// worker is one process, forked by a parent for one task.
type worker struct {
	parent     *parent
	number     int64
	conn       *net.UnixConn
	check      bool           // the worker must check whether the files that its parent has read have changed
	forked     time.Time      // when the fork was ordered
	forkDone   chan struct{}  // closed when the parent says that it has forked the worker
	killDone   chan struct{}  // closed when the parent says that it is killing the worker
	ended      chan struct{}  // closed when the parent says that the worker, and everything it has started, has ended
	endMessage pyfork.Message // the parent's message that the worker has ended; set before ended is closed
	killedByUs bool           // the host has ordered the parent to kill the worker; only the task's own goroutine uses it
}

// forkWorker orders the parent to fork a worker for a task that arrived at asked. The worker checks
// for changed files, unless another worker has done so after asked. The caller must call finish for
// it.
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

// listen handles the messages of the parent until it ends. It calls threads with the names of threads
// that imported modules have started in the parent.
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

// closeOnce closes a channel unless it is closed already: a parent may repeat a message. All calls
// for a channel come from one goroutine.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// noteUnchanged notes that the files were unchanged when this worker was forked, if it was one that
// checks them.
func (p *parent) noteUnchanged(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.check && w.forked.After(p.checked) {
		p.checked = w.forked
	}
}

// workerCount returns how many workers of p have not ended.
func (p *parent) workerCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers)
}

// errLost means that a worker, or its parent, ended without an answer.
var errLost = errors.New("the Python ended")

// readAnswer reads the worker's next answer, of at most maxBytes bytes, until ctx ends.
func (w *worker) readAnswer(ctx context.Context, maxBytes int) (*value.Map, error) {
	defer context.AfterFunc(ctx, func() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) })()
	packed, err := pyframe.Read(w.conn, maxBytes)
	switch {
	case err == nil:
		return pyframe.Map(packed)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, errors.Join(errLost, err)
}

// sendRequest sends a packed request to the worker. It gives up when ctx ends.
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

// endWorker kills the worker with everything that it has started. A lost worker first gets lostTakes
// to end by itself, so that its exit status becomes known. If the parent does not carry out the
// order, it is killed, too.
func (w *worker) endWorker(lost bool) {
	if lost && w.waitOver(w.killDone, lostTakes) {
		return
	}
	w.killedByUs = true
	// an error means that the parent is gone
	_ = w.parent.Order(value.NewMap("op", "kill", "worker", w.number), nil)
	if !w.waitOver(w.killDone, obeyTakes) {
		w.parent.Stop(0)
	}
}

// waitOver waits until signal is closed, which means that the parent has carried out an order, or
// until the worker or the parent has ended. If none of this happens within limit, it returns false.
func (w *worker) waitOver(signal <-chan struct{}, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-signal:
	case <-w.ended:
	case <-w.parent.gone:
	case <-t.C:
		return false
	}
	return true
}

// endReason says how a worker ended that gave no answer.
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
