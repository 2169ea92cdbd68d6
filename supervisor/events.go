package supervisor

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/history"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// maxUnwritten bounds the events that wait for a disk; the oldest go first.
const maxUnwritten = 1000

// recorder writes down what happens. The disk may hang, so that a worker writes;
// what could not be written is tried again with the next status.
type recorder struct {
	book   *history.Book
	log    *slog.Logger
	old    *status.Document // note's alone
	writes worker

	mu      sync.Mutex
	waiting []history.Event
	broken  bool
}

func newRecorder(cfg *settings.Settings, log *slog.Logger) *recorder {
	return &recorder{book: history.NewBook(filepath.Join(cfg.LogDir(), "events.jsonl")), log: log}
}

// note takes the newest status. It does not block, and is for one goroutine.
func (r *recorder) note(d status.Document) {
	events := history.Compare(r.old, d)
	r.old = &d
	r.mu.Lock()
	r.waiting = append(r.waiting, events...)
	r.waiting = r.waiting[max(0, len(r.waiting)-maxUnwritten):]
	idle := len(r.waiting) == 0
	r.mu.Unlock()
	if !idle {
		r.writes.start(r.write)
	}
}

func (r *recorder) write() {
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

// wait waits for what is being written, but not for a disk that hangs.
func (r *recorder) wait() { r.writes.wait(2 * time.Second) }

// Events implements api.Events.
func (s *Supervisor) Events(last int, since time.Time) ([]history.Event, error) {
	s.mu.Lock()
	n := s.node
	s.mu.Unlock()
	if n == nil {
		return nil, fmt.Errorf("%w: this node is not set up; next: applianced setup", api.ErrState)
	}
	return n.events.book.Last(last, since)
}
