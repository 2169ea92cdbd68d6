package zmtp

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// pool is a budget, in bytes or in connections, that the connections of a listener share. No source
// may hold more than k times the amount that is left, where k is the field times: a single source
// gets at most k/(k+1) of the budget, and n greedy sources leave 1/(n*k+1) of it to the next
// source, however many connections they open (Choudhury and Hahne, Dynamic queue length thresholds,
// 1998).
type pool struct {
	max, times int64

	mu       sync.Mutex
	used     int64
	bySource map[netip.Addr]int64
}

// reserve reserves n more units of the budget for src, and reports whether the bounds permitted
// that. It never waits: a caller that waited would keep its earlier reservations meanwhile.
func (p *pool) reserve(src netip.Addr, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	has := p.bySource[src]
	if p.used+n > p.max || has+n > p.times*(p.max-p.used) {
		return false
	}
	if p.bySource == nil {
		p.bySource = map[netip.Addr]int64{}
	}
	p.used += n
	p.bySource[src] = has + n
	return true
}

func (p *pool) release(src netip.Addr, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
	if p.bySource[src] -= n; p.bySource[src] <= 0 {
		delete(p.bySource, src)
	}
}

// Account limits what a connection of a Router may use. Authenticated peers share one memory
// budget; unauthenticated peers share a smaller one, called strangers in this package. Handlers of
// requests call Take, Prove and Park. A nil Account limits nothing.
type Account struct {
	hub    *hub
	source netip.Addr // result of source for the peer; the zero value on Unix sockets
	proven atomic.Bool
	held   [2]int64 // bytes of the present request: [0] from the pool hub.strangers, [1] from the pool hub.memory
	// workers is the worker pool that handles the present request. It is nil outside of a handler.
	workers *workers
}

// trusted reports whether the peer is treated as authenticated: because a request of the connection
// or of its source was authenticated, or because the connection comes from a tool on this host or
// from a health check.
func (a *Account) trusted() bool {
	if a.proven.Load() {
		return true
	}
	if a.hub.cfg.Sources.Proven(a.source) {
		a.proven.Store(true)
		return true
	}
	return false
}

// Prove records that a request of this connection was authenticated. For the first such request,
// Prove calls fresh and records nothing if fresh returns false: the request may be a replay.
func (a *Account) Prove(fresh func() bool) {
	if a == nil || !a.proven.Load() && !fresh() {
		return
	}
	a.proven.Store(true)
	a.hub.cfg.Sources.Prove(a.source)
}

// Take reserves n bytes of memory until the present request is answered. If Take returns false, the
// handler must refuse the request.
func (a *Account) Take(n int64) bool {
	if a == nil {
		return true
	}
	p, i := a.memoryPool()
	if !p.reserve(a.source, n) {
		a.hub.count.noRoom.Add(1)
		return false
	}
	a.held[i] += n
	return true
}

// Park releases the worker and the memory of the present request, for a handler that is about to
// wait for long. The handler keeps its goroutine, connection and payload. Before the handler
// continues, it must call resume, which waits for a free worker and does not reserve the memory
// again.
func (a *Account) Park() (resume func()) {
	if a == nil || a.workers == nil {
		return func() {}
	}
	a.release()
	a.hub.count.working.Add(-1)
	a.hub.count.parked.Add(1)
	a.workers.leavePlace()

	return func() {
		a.workers.takePlace()
		a.hub.count.parked.Add(-1)
		a.hub.count.working.Add(1)
	}
}

func (a *Account) memoryPool() (*pool, int) {
	if a.trusted() {
		return &a.hub.memory, 1
	}
	return &a.hub.strangers, 0
}

// release returns to the pools the memory that Take reserved.
func (a *Account) release() {
	for i, p := range []*pool{&a.hub.strangers, &a.hub.memory} {
		if a.held[i] != 0 {
			p.release(a.source, a.held[i])
			a.held[i] = 0
		}
	}
}
