package request

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/value"
)

func (s *Server) dispatch(ctx context.Context, c *Call) (any, error) {
	raw, _ := c.Load.Get("cmd")
	name, _ := raw.(string)
	m, ok := s.cfg.Methods[name]
	if !ok || m.Local {
		s.stats.refused.Add(1)
		s.cfg.Log.Error("Requested method not exposed: "+sanitize(fmt.Sprint(raw)), "minion", c.ID, "from", c.From)
		return value.NewMap(), nil
	}

	for _, f := range m.Requires {
		if _, ok := c.Load.Get(f); !ok {
			s.cfg.Log.Info("request lacks a field", "minion", c.ID, "cmd", name, "field", f)
			return m.Missing, nil
		}
	}

	if !m.Once {
		return s.callMinion(ctx, name, m, c)
	}

	entry, first := s.replays.claimEntry(c.ID, c.Nonce, s.cfg.Now())
	for !first {
		s.stats.replayed.Add(1)
		v, err := s.shared(ctx, c, entry)
		if !errors.Is(err, errUndone) {
			return v, err
		}
		entry, first = s.replays.claimEntry(c.ID, c.Nonce, s.cfg.Now())
	}

	defer close(entry.done)
	key, err := s.takeNonce(c)
	if err != nil {
		s.replays.forget(entry)
		entry.err = err
		return nil, err
	}

	var failed bool
	entry.value, failed, entry.err = s.attempt(ctx, name, m, c)
	if failed {
		s.replays.forget(entry)
		if s.cfg.Nonces != nil {
			s.cfg.Nonces.forget(key)
		}
	}

	return entry.value, entry.err
}

// maxSharers bounds how many callers wait for the answer to one request. A small bound suffices,
// because a minion disconnects before it repeats a request. Overflow policy: further callers get no
// answer.
const maxSharers = 8

// errUndone means that the request was not executed, because the caller who had claimed the request
// disconnected before the request got its turn.
var errUndone = errors.New("the request was not begun")

// shared waits for the answer to a request that arrived earlier over another connection of the same
// sender. If it returns errUndone, the caller must claim the request again.
func (s *Server) shared(ctx context.Context, c *Call, entry *replayEntry) (any, error) {
	select {
	case <-entry.done:
	default:
		defer entry.sharers.Add(-1)
		if entry.sharers.Add(1) > maxSharers {
			return nil, fmt.Errorf("too many repeat a request that is at work: %w", ErrSilence)
		}

		err := c.Park(ctx, func(asked context.Context) error {
			select {
			case <-entry.done:
				return nil
			case <-asked.Done():
				return ErrLeft
			}
		})
		if err != nil {
			return nil, err
		}
	}

	if errors.Is(entry.err, ErrLeft) {
		return nil, errUndone
	}

	return entry.value, entry.err
}

// takeNonce records a request with a lasting effect before the request is executed. It refuses a
// request that another master took, or that this master took before its start.
func (s *Server) takeNonce(c *Call) (NonceKey, error) {
	if s.cfg.Nonces == nil {
		return NonceKey{}, nil
	}
	key := nonceKey(c.ID, c.Nonce)
	if !s.cfg.Nonces.addOwn(key) {
		s.stats.replayed.Add(1)
		return key, refuse(badLoad, "request of %.64q was taken before, by another master or before the start", c.ID)
	}
	if s.cfg.Cluster != nil {
		s.cfg.Cluster.ShareNonce(key)
	}
	return key, nil
}

func (s *Server) callMinion(ctx context.Context, name string, m Method, c *Call) (any, error) {
	v, _, err := s.attempt(ctx, name, m, c)
	return v, err
}

// attempt runs a method. failed is true if the method returned an error. After such an error
// attempt returns an empty text as the answer, or ErrSilence if the sender may succeed by repeating
// the request.
func (s *Server) attempt(ctx context.Context, name string, m Method, c *Call) (v any, failed bool, err error) {
	v, err = s.callMethod(ctx, name, m, c)
	switch {
	case errors.Is(err, ErrSilence):
		return nil, true, fmt.Errorf("%s of %s: %w", name, c.ID, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil, true, fmt.Errorf("%s of %s: %w: %w", name, c.ID, err, ErrSilence)
	case err != nil:
		return s.failed(name, c, err), true, nil
	}
	return v, false, nil
}

// failed logs a method's error. It returns an empty text, which is Salt's answer after an error.
func (s *Server) failed(name string, c *Call, err error) any {
	s.stats.failed.Add(1)
	s.cfg.Log.Error("method failed", "cmd", name, "minion", c.ID, "from", c.From, "error", err)
	return ""
}

// callMethod runs a method. It returns a panic of the method as an error.
func (s *Server) callMethod(ctx context.Context, name string, m Method, c *Call) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("method %s panicked: %v", name, p)
			s.cfg.Log.Error("panic in a method", "cmd", name, "panic", p, "stack", stackTrace())
		}
	}()
	return m.Do(ctx, c)
}
