package renderer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"saltern/master/value"
)

// Reactions compiles reaction files with Salt's own reactor. It has its own worker, which pillar
// requests do not use. The worker starts at the first event. The worker is replaced when packages
// or options change, and at regular intervals, so that changed modules are loaded. A Reactions is
// created by Pool.Reactions and must be closed. Only one goroutine at a time may call Compile.
type Reactions struct {
	pool *Pool
	cfg  ReactionsConfig

	mu      sync.Mutex
	session *Session // nil: no session is open
	layer   string   // directory of packages that session uses
	options *value.Map
	since   time.Time   // when session was opened
	idle    *time.Timer // timer that closes session when it is idle
	// grains are the master's own grains. As in Salt's master they are computed only once.
	grains *value.Map
}

// ReactionsConfig configures Reactions.
type ReactionsConfig struct {
	// Options returns the options whose current values differ from the configuration, such as
	// file_roots for files from git. It may be nil: none differ.
	Options func(ctx context.Context) *value.Map
	// Renew is how long a worker is used before it is replaced (reactor_refresh_interval); 0 means
	// one minute.
	Renew time.Duration
}

// Reactions returns a new Reactions. It starts no process.
func (p *Pool) Reactions(cfg ReactionsConfig) *Reactions {
	setDefault(&cfg.Renew, time.Minute)
	return &Reactions{pool: p, cfg: cfg}
}

// Compile renders and compiles the reaction files of an event, in Salt's order. calls contains a
// map for each function to call, with the keys id and file of the reaction, kind (local, runner,
// wheel, caller), fun, arg and kwarg. A call of kind local also has the key load, with the other
// fields of a publication. A call of kind runner or wheel also has the key unknown: true if Salt
// does not have the function; kwarg then holds all fields of the reaction. faults contains a map
// for each fault, with the keys text, error (true for an error, false for a warning) and, if known,
// file and line.
//
// An event is not repeated, so Compile does not fail when no Python can be started: it waits until
// one can, or until ctx ends.
func (r *Reactions) Compile(
	ctx context.Context,
	tag string,
	data *value.Map,
	files []string,
) (calls, faults []*value.Map, err error) {
	request := value.NewMap("op", "react", "tag", tag, "data", data, "files", value.List(files))
	reply, err := r.sendRequest(ctx, request)
	for errors.Is(err, errStart) {
		select {
		case <-time.After(r.pool.cfg.RetryStart):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		reply, err = r.sendRequest(ctx, request)
	}

	if err != nil {
		return nil, nil, err
	}

	return onlyMaps(reply.List("calls")), onlyMaps(reply.List("faults")), nil
}

func onlyMaps(list []any) (out []*value.Map) {
	for _, v := range list {
		if m, ok := v.(*value.Map); ok {
			out = append(out, m)
		}
	}
	return out
}

// sendRequest sends a request to the current worker.
func (r *Reactions) sendRequest(ctx context.Context, request *value.Map) (*value.Map, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.openSession(ctx); err != nil {
		return nil, err
	}

	reply, err := r.session.callWorker(ctx, request)
	if err != nil && r.session.broken {
		r.endSession()
	}
	return reply, err
}

// openSession opens a session if there is no valid one. The caller holds r.mu.
func (r *Reactions) openSession(ctx context.Context) error {
	layer := r.pool.cfg.Layer()
	options := value.NewMap()
	if r.cfg.Options != nil {
		options = r.cfg.Options(ctx)
	}

	fits := r.session != nil && r.layer == layer && value.Equal(r.options, options) && time.Since(r.since) < r.cfg.Renew
	if fits {
		r.idle.Reset(r.idleTime())
		return nil
	}

	r.endSession()
	s, err := r.startSession(ctx, options)
	if err != nil {
		return fmt.Errorf("start Salt's reactor: %w", err)
	}

	r.session = s
	r.layer = layer
	r.options = options
	r.since = time.Now()
	r.idle = time.AfterFunc(r.idleTime(), r.Close) // the timer is stopped by endSession

	return nil
}

// idleTime returns how long an idle worker is kept.
func (r *Reactions) idleTime() time.Duration { return min(r.cfg.Renew, r.pool.cfg.IdleStop) }

// startSession opens a new session.
func (r *Reactions) startSession(ctx context.Context, options *value.Map) (*Session, error) {
	w, err := r.pool.acquire(ctx, true)
	if err != nil {
		return nil, err
	}

	s := &Session{
		pool:      r.pool,
		isReactor: true,
		begin:     value.NewMap("op", "begin", "kind", "reactor", "opts", options.Clone(), "grains", r.grains.Clone()),
		worker:    w,
	}

	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	if r.grains != nil {
		return s, nil
	}

	reply, err := s.callWorker(ctx, value.NewMap("op", "grains"))
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("read the grains of the master: %w", err)
	}

	r.grains = reply.Map("value")
	return s, nil
}

// endSession closes the session, if one is open. The caller holds r.mu.
func (r *Reactions) endSession() {
	if r.session == nil {
		return
	}
	r.idle.Stop()
	r.session.Close()
	r.session = nil
}

// Close ends the worker. The next Compile starts another worker.
func (r *Reactions) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endSession()
}
