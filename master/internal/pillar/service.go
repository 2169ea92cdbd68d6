package pillar

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"saltern/control"
	"saltern/master/cache"
	"saltern/master/conf"
	"saltern/master/internal/pillar/memo"
	"saltern/master/runner"
	"saltern/master/value"
)

// Cleared is the event by which peers learn that the pillars of minions are to
// be compiled anew (pillar_cache): the next request may reach them.
const Cleared = "master/pillar_cache/clear"

// ServiceConfig of a Service.
type ServiceConfig struct {
	Compiler *Compiler
	Memo     *memo.Store // of the Compiler, for Stats; nil: none
	Cache    *cache.Store
	Keep     bool          // pillar_cache: a compiled pillar is given again
	TTL      time.Duration // pillar_cache_ttl
	Data     bool          // minion_data_cache
	// Tell fires Cleared, with the id of a minion; nil alone.
	Tell func(tag string, data *value.Map)
	Now  func() time.Time
	Log  *slog.Logger
}

// Service gives minions their pillars, and knows whose cannot be compiled. It is
// safe for concurrent use.
type Service struct {
	cfg            ServiceConfig
	compiling      clearances
	faults         *faults
	pillars, wrong atomic.Uint64
}

// NewService makes a Service.
func NewService(cfg ServiceConfig) *Service { return &Service{cfg: cfg, faults: newFaults()} }

// Serve gives the pillar of a minion that asks for it: with pillar_cache the one
// that was compiled before, unless clean asks for a new one
// (salt/pillar/__init__.py PillarCache). Pillars with errors are counted and
// remembered, see Stats.
func (s *Service) Serve(ctx context.Context, req Request, clean bool) (*value.Map, error) {
	p, err := s.pillar(ctx, req, clean)
	if err != nil {
		s.failed(req.ID, err.Error(), 1)
		return nil, fmt.Errorf("compile the pillar: %w", err)
	}
	s.pillars.Add(1)
	if errs := p.List("_errors"); len(errs) > 0 {
		s.failed(req.ID, fmt.Sprint(errs[0]), len(errs))
	} else if s.faults.forget(req.ID) {
		s.cfg.Log.Info("pillar compiles again", "minion", req.ID)
	}
	return p, nil
}

// pillar is Serve without the count. A pillar with errors or with an override is
// not kept.
func (s *Service) pillar(ctx context.Context, req Request, clean bool) (*value.Map, error) {
	c := &s.cfg
	env := c.Compiler.Env(req)
	if c.Keep {
		if clean {
			s.Clear(req.ID)
		} else if p, ok := c.Cache.Compiled(req.ID, env, c.Now(), c.TTL); ok {
			return c.Compiler.Override(p, req.Override), nil
		}
	}
	end := s.compiling.begin(req.ID)
	p, err := c.Compiler.Compile(ctx, req)
	cleared := end()
	if err != nil || req.Override.Len() > 0 {
		return p, err
	}
	var kept error
	switch {
	case c.Keep && !cleared && len(p.List("_errors")) == 0:
		kept = c.Cache.KeepCompiled(req.ID, env, p, c.Now())
	case c.Data:
		_, kept = c.Cache.Set(cache.Pillar, req.ID, p)
	}
	if kept != nil {
		c.Log.Error("pillar cannot be kept", "minion", req.ID, "error", kept)
	}
	return p, nil
}

// failed tells of a pillar that a minion did not get whole. What is shown of its
// first error is the first line, without passwords: what follows shows excerpts
// of the pillar.
func (s *Service) failed(id, first string, errs int) {
	first, _, _ = strings.Cut(first, "\n")
	first, _ = conf.Shown(first).(string)
	s.wrong.Add(1)
	s.NoteFault(id, first)
	s.cfg.Log.Error("pillar has errors", "minion", id, "errors", errs, "first", first)
}

// Clear makes the next pillars of a minion be compiled anew, in all environments
// and on all masters.
func (s *Service) Clear(id string) {
	s.Drop(id)
	if s.cfg.Keep && s.cfg.Tell != nil {
		s.cfg.Tell(Cleared, value.NewMap("id", id))
	}
}

// Drop is Clear on this master.
func (s *Service) Drop(id string) {
	s.compiling.clear(id)
	if err := s.cfg.Cache.FlushCompiled(id); err != nil {
		s.cfg.Log.Error("pillar cannot be cleared", "minion", id, "error", err)
	}
}

// NoteFault remembers that the pillar of a minion fails.
func (s *Service) NoteFault(id, text string) { s.faults.note(id, text, s.cfg.Now()) }

// ForgetFault drops what is known of a minion whose key is gone.
func (s *Service) ForgetFault(id string) { s.faults.forget(id) }

// ServiceStats are counters since the start, and the faults that stand.
type ServiceStats struct {
	Pillars, Errors uint64
	Last            *control.PillarError // nil: every pillar compiles
	Faulty          int                  // minions whose last pillar had errors
	Memo            *control.PillarMemo  // nil: templates are rendered for each minion
}

// Stats returns the counters.
func (s *Service) Stats() ServiceStats {
	st := ServiceStats{Pillars: s.pillars.Load(), Errors: s.wrong.Load()}
	st.Last, st.Faulty = s.faults.last(s.cfg.Now())
	if s.cfg.Memo != nil {
		m := s.cfg.Memo.Stats()
		st.Memo = &control.PillarMemo{Hits: m.Hits, Misses: m.Misses, Alone: m.Alone, Dropped: m.Dropped, Results: m.Results, Bytes: m.Bytes}
	}
	return st
}

// Runners is what the runners pillar.* reach of a Service.
type Runners struct{ Service *Service }

// Compile compiles a pillar that is not kept.
func (r Runners) Compile(ctx context.Context, id string, grains *value.Map, saltenv, pillarenv string) (*value.Map, error) {
	return r.Service.cfg.Compiler.Compile(ctx, Request{ID: id, Grains: grains, Saltenv: saltenv, Pillarenv: pillarenv})
}

// Top is left to Python.
func (Runners) Top(context.Context, string, *value.Map, string) (*value.Map, []string, error) {
	return nil, nil, runner.ErrUnavailable
}

// Cached is the pillar that is kept of a minion.
func (r Runners) Cached(id, pillarenv string) (*value.Map, bool) {
	c := &r.Service.cfg
	if !c.Keep && pillarenv == "" {
		return c.Cache.Get(cache.Pillar, id)
	}
	return c.Cache.Compiled(id, c.Compiler.Env(Request{Saltenv: "base", Pillarenv: pillarenv}), c.Now(), c.TTL)
}

// Caches reports whether any pillar is kept.
func (r Runners) Caches() bool { return r.Service.cfg.Keep || r.Service.cfg.Data }

// clearances tells a pillar that was cleared while it was compiled: it may
// hold what the sources held before. It is safe for concurrent use.
type clearances struct {
	mu sync.Mutex
	m  map[string]*underWay // by minion, while one runs
}

type underWay struct{ running, cleared int }

// begin notes the start of a compilation. end must be called once, and reports
// whether the pillar was cleared meanwhile.
func (c *clearances) begin(id string) (end func() (cleared bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[string]*underWay{}
	}
	now := c.m[id]
	if now == nil {
		now = &underWay{}
		c.m[id] = now
	}
	now.running++
	before := now.cleared
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if now.running--; now.running == 0 {
			delete(c.m, id)
		}
		return now.cleared != before
	}
}

func (c *clearances) clear(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.m[id]; now != nil {
		now.cleared++
	}
}
