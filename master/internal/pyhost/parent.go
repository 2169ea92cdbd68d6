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
	layer string        // folder of packages with which it was started
	gone  chan struct{} // closed when it sends no more messages

	mu      sync.Mutex
	workers map[int64]*worker
	checked time.Time // time up to which its files are known to match the disk
	retired bool      // it gets no more tasks
}

// worker is one forked process, for one task.
type worker struct {
	parent     *parent
	number     int64
	conn       *net.UnixConn
	check      bool           // it must compare the parent's files with the disk
	forked     time.Time      // earliest time of the fork
	forkDone   chan struct{}  // closed when the parent has forked it
	killDone   chan struct{}  // closed when the parent has killed it
	ended      chan struct{}  // closed when it has ended, with everything that it has started
	endMessage pyfork.Message // message of its end
	killedByUs bool           // killed by this host; used by the goroutine of the task
}

// forkWorker forks a worker for a task of the given time. finish must be called for it. The worker
// checks whether files have changed, unless another one has done so since.
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

// listen handles the messages of the parent until it ends.
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

// closeOnce closes a channel unless it is closed. Only the caller's goroutine closes it, but a
// parent may repeat a message.
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

// workerCount returns the number of workers.
func (p *parent) workerCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers)
}

// errLost means that a worker, or its parent, ended without an answer.
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

// endWorker ends the worker with everything that it has started. A lost one gets a moment to end by
// itself, to learn its exit status. A parent that does not obey is killed.
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

// waitOver waits until the parent has carried out an order, or the worker or the parent has ended.
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
