package service

import (
	"sync"
	"time"
)

// Worker runs one thing at a time that may hang. The zero value is ready.
type Worker struct {
	mu   sync.Mutex
	done chan struct{} // of what runs; nil: nothing
}

// Start runs f unless something still runs.
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

// Wait waits for what runs, at most for limit: it may hang in the kernel.
func (w *Worker) Wait(limit time.Duration) {
	w.mu.Lock()
	done := w.done
	w.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(limit):
	}
}
