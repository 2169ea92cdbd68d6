package zmtp

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// pool is a budget that connections share, counted in bytes or in connections. No source may hold
// more than times as much as is left for others: a single source gets at most times/(times+1) of
// it, and n greedy ones leave 1/(n*times+1) to the next, however many connections they open
// (Choudhury and Hahne, Dynamic queue length thresholds, 1998).
type pool struct {
	max, times int64

	mu       sync.Mutex
	used     int64
	bySource map[netip.Addr]int64
}

// reserve reserves n more for src and reports whether there was room. It never waits: a waiting
// caller would hold what it has already.
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

// Account limits what a connection of a Router may use. Peers that have proved their identity share
// one memory budget, strangers share a smaller one. Take and Prove are for the handler of a
// request.
type Account struct {
	hub    *hub
	source netip.Addr // see source; the zero value on Unix sockets
	proven atomic.Bool
	held   [2]int64 // reserved for the present request: from the strangers' pool, from the others' pool
	// workers are the workers of the present request. It is nil outside of a handler.
	workers *workers
}

// trusted reports whether the connection, or a request from its source, was proven, or whether it
// comes from this host without a proxy: a tool or a health check.
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

// Prove records that a request of this connection was proven. Unless that is known already, it
// calls fresh to check that the proof is new.
func (a *Account) Prove(fresh func() bool) {
	if a == nil || !a.proven.Load() && !fresh() {
		return
	}
	a.proven.Store(true)
	a.hub.cfg.Sources.Prove(a.source)
}

// Take reserves n bytes of memory until the present request is answered. If it returns false, the
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
// wait for long. The handler keeps its goroutine, connection and payload. It must call resume
// before it goes on; resume waits for a free worker and does not reserve memory again.
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

// release releases the memory that Take reserved.
func (a *Account) release() {
	for i, p := range []*pool{&a.hub.strangers, &a.hub.memory} {
		if a.held[i] != 0 {
			p.release(a.source, a.held[i])
			a.held[i] = 0
		}
	}
}
