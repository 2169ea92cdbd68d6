package master

import (
	"context"
	"sync"

	"saltern/master/cache"
	"saltern/master/msgpack"
	"saltern/master/pillar"
)

// pillarCleared is the event by which peers learn that the pillars of minions
// are to be compiled anew (pillar_cache): the next request may reach them.
const pillarCleared = "master/pillar_cache/clear"

// compilations tells a pillar that was cleared while it was compiled: it may
// hold what the sources held before. It is safe for concurrent use.
type compilations struct {
	mu sync.Mutex
	m  map[string]*compilation // by minion, while one runs
}

type compilation struct{ running, cleared int }

// begin notes the start of a compilation. end must be called once, and tells
// whether the pillar was cleared meanwhile.
func (c *compilations) begin(id string) (end func() (cleared bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[string]*compilation{}
	}
	now := c.m[id]
	if now == nil {
		now = &compilation{}
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

func (c *compilations) clear(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.m[id]; now != nil {
		now.cleared++
	}
}

// minionPillar gives the pillar of a minion: with pillar_cache the one that was
// compiled before, unless clean asks for a new one (salt/pillar/__init__.py
// PillarCache). A pillar with errors or with an override is not kept.
func (m *Master) minionPillar(ctx context.Context, req pillar.Request, clean bool) (*msgpack.Map, error) {
	env := m.pillars.Env(req)
	if m.cfg.PillarCache {
		if clean {
			m.clearPillar(req.ID)
		} else if p, ok := m.cache.Compiled(req.ID, env, m.now(), m.cfg.PillarCacheTTL); ok {
			return m.pillars.Override(p, req.Override), nil
		}
	}
	end := m.compiling.begin(req.ID)
	p, err := m.pillars.Compile(ctx, req)
	cleared := end()
	if err != nil || req.Override.Len() > 0 {
		return p, err
	}
	var kept error
	switch {
	case m.cfg.PillarCache && !cleared && len(p.List("_errors")) == 0:
		kept = m.cache.KeepCompiled(req.ID, env, p)
	case m.cfg.MinionDataCache:
		_, kept = m.cache.Set(cache.Pillar, req.ID, p)
	}
	if kept != nil {
		m.log.Error("pillar cannot be kept", "minion", req.ID, "error", kept)
	}
	return p, nil
}

// clearPillar has the pillars of a minion compiled anew, in all environments
// and on all masters.
func (m *Master) clearPillar(id string) {
	m.forgetPillar(id)
	if m.cfg.PillarCache && m.cluster != nil {
		m.fire(pillarCleared, msgpack.NewMap("id", id))
	}
}

func (m *Master) forgetPillar(id string) {
	m.compiling.clear(id)
	if err := m.cache.FlushCompiled(id); err != nil {
		m.log.Error("pillar cannot be cleared", "minion", id, "error", err)
	}
}
