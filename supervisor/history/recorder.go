package history

import (
	"log/slog"
	"sync"
	"time"

	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
)

// maxUnwritten bounds how many events are queued for the disk. When the queue is full, the oldest
// events are dropped.
const maxUnwritten = 1000

// Recorder writes the events between one status and the next to a [Book]. A worker goroutine
// writes, because the disk may hang. If the worker cannot write events, it tries again at the next
// status.
type Recorder struct {
	book   *Book
	log    *slog.Logger
	old    *status.Document // previous status; only Note uses it
	writes service.Worker

	mu      sync.Mutex
	waiting []Event
	broken  bool
}

// NewRecorder returns a recorder for the file path.
func NewRecorder(path string, log *slog.Logger) *Recorder {
	return &Recorder{book: newBook(path), log: log}
}

// Note compares the newest status with the previous one. It does not block, and must always be
// called by the same goroutine.
func (r *Recorder) Note(d status.Document) {
	events := compare(r.old, d)
	r.old = &d
	r.mu.Lock()
	r.waiting = append(r.waiting, events...)
	r.waiting = r.waiting[max(0, len(r.waiting)-maxUnwritten):]
	idle := len(r.waiting) == 0
	r.mu.Unlock()
	if !idle {
		r.writes.Start(r.writeSample)
	}
}

func (r *Recorder) writeSample() {
	r.mu.Lock()
	events := r.waiting
	r.waiting = nil
	r.mu.Unlock()

	err := r.book.Append(events)
	r.mu.Lock()
	defer r.mu.Unlock()

	if err != nil {
		r.waiting = append(events, r.waiting...)
		if !r.broken {
			r.log.Warn("events cannot be written down; retrying", "error", err)
		}
	}

	r.broken = err != nil
}

// Wait waits until pending writes are done, at most for two seconds, because the disk may hang.
func (r *Recorder) Wait() { r.writes.Wait(2 * time.Second) }

// Last returns the newest events, see [Book.Last].
func (r *Recorder) Last(q Query) ([]Event, error) { return r.book.Last(q) }
