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

// Session is a task that lasts until it is closed. Its worker either answers one message after the
// other, or works without messages. A session occupies no place (see places); the callers of Open
// bound the number of sessions. Only one goroutine may use a session, except that any goroutine may
// call Close.
type Session struct {
	host   *Host
	worker *worker
	close  sync.Once
}

// errEnded means that the program of a session has ended by itself, without an error.
var errEnded = errors.New("it has ended by itself")

// Open starts a session and returns when the program reports that it has begun. The error comes
// from the program, or is one of the errors of Do. All sessions must be closed before the Host,
// because Close of the Host waits for them.
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

// outcomeOf returns an error that says why a program ended, taken from the program's last message.
// It never returns nil.
func outcomeOf(reply *value.Map) error {
	if text := reply.Str("error"); text != "" {
		return errors.New(text)
	}
	return errEnded
}

// askOnce sends a packed message to the worker and returns the worker's answer.
func (w *worker) askOnce(ctx context.Context, frame []byte) (*value.Map, error) {
	if err := w.sendRequest(ctx, frame); err != nil {
		return nil, err
	}
	return w.readAnswer(ctx, maxAnswer+1<<10)
}

// Ask sends a message to the program and returns the program's answer. After an error the session
// is unusable and must be closed.
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

// Wait waits until the program of the session ends, and returns an error that says why. It never
// returns nil.
func (s *Session) Wait(ctx context.Context) error {
	reply, err := s.worker.readAnswer(ctx, maxAnswer+1<<10)
	if err == nil {
		return outcomeOf(reply)
	}
	return s.explain(err)
}

// explain returns err, unless err is errLost. For errLost it returns an error that states how the
// worker ended, and closes the session.
func (s *Session) explain(err error) error {
	if !errors.Is(err, errLost) {
		return err
	}
	s.Close()
	return s.host.orClosed(s.worker.endReason())
}

// Stale reports whether files of Salt's library, or the Python packages, have changed since the
// session was opened. A new session would use the changed files and packages.
func (s *Session) Stale() bool {
	p := s.worker.parent
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.retired
}

// Terminate sends SIGTERM to the program and waits up to stopTakes for the program's end. The
// caller must still call Close.
func (s *Session) Terminate() {
	// Ignore the error: it means that the parent has ended.
	_ = s.worker.parent.Order(value.NewMap("op", "terminate", "worker", s.worker.number), nil)
	s.worker.waitOver(s.worker.ended, stopTakes)
}

// Close ends the session. A worker that waits for a message ends by itself. A worker that has not
// ended after lostTakes is killed with everything that it has started.
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
