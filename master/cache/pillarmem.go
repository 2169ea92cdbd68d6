package cache

import (
	"container/list"
	"sync"
	"time"

	"saltern/master/value"
)

// maxPillarsInMemory bounds the number of pillars in memory. Overflow policy: the least recently
// used pillars are dropped, as when the bound in bytes is exceeded.
const maxPillarsInMemory = 100_000

// pillars holds compiled pillars in memory. It is safe for concurrent use.
type pillars struct {
	limit int64 // limit of the bytes of all pillars in memory, estimated as for entries in memory

	mu    sync.Mutex
	used  int64
	order *list.List                          // the least recently used pillar first
	byID  map[string]map[string]*list.Element // pillars by minion and pillar environment
}

type keptPillar struct {
	id, env string
	at      time.Time
	m       *value.Map
	size    int64
}

func newPillars(limit int64) *pillars {
	return &pillars{limit: limit, order: list.New(), byID: map[string]map[string]*list.Element{}}
}

func (p *pillars) get(id, env string, now time.Time, ttl time.Duration) (*value.Map, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.byID[id][env]
	if !ok {
		return nil, false
	}
	k := e.Value.(*keptPillar)
	if age := now.Sub(k.at); age < 0 || age >= ttl {
		p.remove(e)
		return nil, false
	}
	p.order.MoveToBack(e)
	return k.m, true
}

func (p *pillars) put(id, env string, m *value.Map, packed int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.byID[id][env]; ok {
		p.remove(e)
	}

	if len(p.byID[id]) >= maxCompiled {
		p.dropID(id)
	}

	if p.byID[id] == nil {
		p.byID[id] = map[string]*list.Element{}
	}

	k := &keptPillar{id, env, now, m.Clone(), int64(packed+len(id)+len(env)+64) * overhead}
	p.byID[id][env] = p.order.PushBack(k)
	p.used += k.size
	for p.used > p.limit && p.order.Len() > 1 || p.order.Len() > maxPillarsInMemory {
		p.remove(p.order.Front())
	}
}

func (p *pillars) dropMinion(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropID(id)
}

func (p *pillars) dropID(id string) {
	for _, e := range p.byID[id] {
		p.remove(e)
	}
}

func (p *pillars) remove(e *list.Element) {
	k := e.Value.(*keptPillar)
	p.order.Remove(e)
	p.used -= k.size
	delete(p.byID[k.id], k.env)
	if len(p.byID[k.id]) == 0 {
		delete(p.byID, k.id)
	}
}
