package service

import (
	"sync"
	"time"
)

// Worker runs work that may hang in the background, one piece at a time. The zero value is ready.
type Worker struct {
	mu   sync.Mutex
	done chan struct{} // closed when the running work ends; nil: none runs
}

// Start runs f in the background, unless earlier work is still running: then it does nothing.
func (w *Worker) Start(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done != nil {
		select {
		case <-w.done:
		default:
			return
		}
	}

	done := make(chan struct{})
	w.done = done
	go func() {
		defer close(done)
		f()
	}()
}

// Wait waits until the running work has ended, at most for limit, because the work may hang in the
// kernel.
func (w *Worker) Wait(limit time.Duration) {
	w.mu.Lock()
	done := w.done
	w.mu.Unlock()
	if done != nil {
		endsBefore(done, time.After(limit))
	}
}
