package pyhost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"saltern/master/internal/pyframe"
	"saltern/master/value"
)

// Session is a task that lasts until it is closed: its worker answers one message after the other,
// or works by itself. It uses none of the places of tasks; the openers bound their number. It is
// for one goroutine; Close may be called by another.
type Session struct {
	host   *Host
	worker *worker
	close  sync.Once
}

// errEnded means that the program of a session has ended.
var errEnded = errors.New("it has ended by itself")

// Open starts a session and returns when the program says that it has begun. An error comes from
// the program, or is one as of Do. Close must be called before the host is closed.
func (h *Host) Open(ctx context.Context, request *value.Map) (*Session, error) {
	asked := time.Now()
	if !h.countTask() {
		return nil, errClosed
	}
	s, err := h.openSession(ctx, request, asked)
	if err != nil {
		h.owned.Done()
		return nil, h.orClosed(err)
	}
	h.sessions.Add(1)
	return s, nil
}

func (h *Host) openSession(ctx context.Context, request *value.Map, asked time.Time) (*Session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTakes+beginTakes, errSlow)
	defer cancel()
	request = request.Clone()
	request.Set("stay", true)
	frame, err := packRequest(request)
	if err != nil {
		return nil, err
	}

	w, err := h.worker(ctx, asked)
	if err != nil {
		return nil, err
	}

	reply, err := w.askOnce(ctx, frame)
	switch {
	case err == nil && reply.Bool("begun"):
		return &Session{host: h, worker: w}, nil
	case err == nil:
		err = outcomeOf(reply)
	}

	w.endWorker(errors.Is(err, errLost))
	h.finish(w, func() {})
	if errors.Is(err, errLost) {
		err = w.endReason()
	}

	return nil, err
}

// outcomeOf returns the outcome in the last message of a program.
func outcomeOf(reply *value.Map) error {
	if text := reply.Str("error"); text != "" {
		return errors.New(text)
	}
	return errEnded
}

// askOnce sends a frame and reads the answer.
func (w *worker) askOnce(ctx context.Context, frame []byte) (*value.Map, error) {
	if err := w.sendRequest(ctx, frame); err != nil {
		return nil, err
	}
	return w.readAnswer(ctx, maxAnswer+1<<10)
}

// Ask sends a message and returns its answer. After an error the session can only be closed.
func (s *Session) Ask(ctx context.Context, message *value.Map) (*value.Map, error) {
	frame, err := pyframe.Append(nil, message)
	if err != nil {
		return nil, fmt.Errorf("pack a message: %w", err)
	}
	if len(frame) > maxRequest {
		return nil, fmt.Errorf("the message has %d bytes, %d are allowed", len(frame), maxRequest)
	}
	reply, err := s.worker.askOnce(ctx, frame)
	return reply, s.explain(err)
}

// Wait waits until the program of the session ends, and returns why. It never returns nil.
func (s *Session) Wait(ctx context.Context) error {
	reply, err := s.worker.readAnswer(ctx, maxAnswer+1<<10)
	if err == nil {
		return outcomeOf(reply)
	}
	return s.explain(err)
}

// explain says how a lost worker ended.
func (s *Session) explain(err error) error {
	if !errors.Is(err, errLost) {
		return err
	}
	s.Close()
	return s.host.orClosed(s.worker.endReason())
}

// Stale reports whether files of Salt's library, or the packages, have changed since the session
// was opened. A new session would use the current ones.
func (s *Session) Stale() bool {
	p := s.worker.parent
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.retired
}

// Terminate sends SIGTERM, so that the program ends by itself within stopTakes. Close must be
// called all the same.
func (s *Session) Terminate() {
	// an error means that the parent is gone
	_ = s.worker.parent.Order(value.NewMap("op", "terminate", "worker", s.worker.number), nil)
	s.worker.waitOver(s.worker.ended, stopTakes)
}

// Close ends the worker with everything that it has started. One that waits for a message ends by
// itself.
func (s *Session) Close() {
	s.close.Do(func() {
		w := s.worker
		_ = w.conn.CloseWrite()
		if !w.waitOver(w.ended, lostTakes) {
			w.endWorker(false)
		}
		s.host.finish(w, func() {})
		s.host.sessions.Add(-1)
		s.host.owned.Done()
	})
}
