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
	layer string        // directory of Python packages that the parent uses
	gone  chan struct{} // closed when listen has read the parent's last message
	// warmed is how many of Host.warm.names the parent was ordered to load. Host.mu protects it.
	warmed int

	mu      sync.Mutex
	workers map[int64]*worker
	checked time.Time // when the parent's files were last known to be unchanged on disk
	retired bool      // no new tasks use the parent
}

// worker is one process, forked by a parent for one task.
type worker struct {
	parent *parent
	number int64
	pid    int64 // from the worker's first message
	conn   *net.UnixConn
	// check means that the worker must check whether the files that its parent has read have
	// changed.
	check    bool
	forked   time.Time     // when the parent was asked to fork the worker
	forkDone chan struct{} // closed when the parent reports that it has forked the worker
	killDone chan struct{} // closed when the parent reports that it is killing the worker
	// ended is closed when the parent reports that the worker, and everything that the worker has
	// started, has ended.
	ended chan struct{}
	// endMessage is the parent's message that the worker has ended. It is set before ended is
	// closed.
	endMessage pyfork.Message
	// killedByUs means that the host has asked the parent to kill the worker. Only the goroutine of
	// the task uses it.
	killedByUs bool
}

// forkWorker asks the parent to fork a worker for a task that arrived at the time arrived. The
// worker checks for changed files, unless another worker has checked them after arrived. The caller
// must call finish for the worker.
func (p *parent) forkWorker(number int64, arrived time.Time) (*worker, error) {
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
	w.check = !p.checked.After(arrived)
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

// Messages of a parent that imported modules have made unfit to fork workers (host.py).
const (
	opThreads = "threads" // the modules have started threads; Error has their names
	opSlow    = "slow"    // an import took too long; Error has the name of the module
)

// listen handles the messages of the parent until the parent ends. It passes a message that the parent is
// unfit to the function unfit.
func (p *parent) listen(unfit func(pyfork.Message)) {
	defer close(p.gone)
	for {
		m, err := p.Receive()
		if err != nil {
			return
		}
		if m.Op == opThreads || m.Op == opSlow {
			unfit(m)
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

// closeOnce closes a channel unless it is already closed, because a parent may repeat a message.
// All calls for a channel must come from one goroutine.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// noteUnchanged records that the files were unchanged when w was forked. If w was not to check the
// files, it records nothing. Call it when w has reported unchanged files.
func (p *parent) noteUnchanged(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.check && w.forked.After(p.checked) {
		p.checked = w.forked
	}
}

// workerCount returns the number of workers of p that have not ended.
func (p *parent) workerCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers)
}

// errLost means that a worker or its parent ended without an answer.
var errLost = errors.New("the Python ended")

// readAnswer reads the worker's next answer, which may have at most maxBytes bytes. It returns an
// error when ctx ends.
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

// sendRequest sends a packed request to the worker. It returns an error when ctx ends.
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

// endWorker kills the worker with everything that it has started. lost means that the worker's
// answer ended too early. endWorker then first waits up to lostTakes for the worker to end by
// itself, so that its exit status becomes known. If the parent does not kill the worker in time,
// endWorker kills the parent, too.
func (w *worker) endWorker(lost bool) {
	if lost && w.waitOver(w.killDone, lostTakes) {
		return
	}
	w.killedByUs = true
	if !w.orderKill(obeyTakes) {
		w.parent.Stop(0)
	}
}

// orderKill orders the parent to kill the worker with everything that it has started. It returns false if
// the parent does not do so within limit.
func (w *worker) orderKill(limit time.Duration) bool {
	// Ignore the error: it means that the parent has ended.
	_ = w.parent.Order(value.NewMap("op", "kill", "worker", w.number), nil)
	return w.waitOver(w.killDone, limit)
}

// waitOver waits until signal is closed, or until the worker or the parent has ended. It returns
// false if none of these happens within limit. signal is closed when the parent has carried out an
// order.
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

// endReason returns an error that reports how a worker without an answer ended.
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
