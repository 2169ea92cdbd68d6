package zmtp

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// pool is something that connections share, counted in bytes or in connections. No
// source may hold more than times as much as is left for others: one source alone
// gets times/(times+1) of it, and n greedy ones leave 1/(n*times+1) to the next,
// however many connections they open (Choudhury and Hahne, Dynamic queue length
// thresholds, 1998).
type pool struct {
	max, times int64

	mu   sync.Mutex
	used int64
	by   map[netip.Addr]int64
}

// reserve reports whether n more could be set aside for src. It gives up at once: who
// waits holds what he has already.
func (p *pool) reserve(src netip.Addr, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	has := p.by[src]
	if p.used+n > p.max || has+n > p.times*(p.max-p.used) {
		return false
	}
	if p.by == nil {
		p.by = map[netip.Addr]int64{}
	}
	p.used += n
	p.by[src] = has + n
	return true
}

func (p *pool) release(src netip.Addr, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
	if p.by[src] -= n; p.by[src] <= 0 {
		delete(p.by, src)
	}
}

// Account is what a connection of a Router may use: who has proved himself shares
// memory with others who have, strangers share less. Take and Prove are for the
// handler of a request.
type Account struct {
	hub    *hub
	source netip.Addr // see source; the zero value on Unix sockets
	proven atomic.Bool
	held   [2]int64 // of the request at work, for strangers and for others
	// workers has the worker of the request at work; nil outside of a handler.
	workers *workers
}

// trusted reports whether the connection, or a request from its source, was proven,
// or it comes from this host without a proxy between: a tool or a health check.
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

// Prove notes that a request of this connection was proven. Unless that is known
// already, fresh is asked whether the proof is new.
func (a *Account) Prove(fresh func() bool) {
	if a == nil || !a.proven.Load() && !fresh() {
		return
	}
	a.proven.Store(true)
	a.hub.cfg.Sources.Prove(a.source)
}

// Take sets aside n bytes of memory until the request at work is answered. When it
// reports false the request must be refused.
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

// Park gives back the worker and the memory of the request at work, for a handler
// that is about to wait for long. Its goroutine, its connection and its payload
// stay. resume takes a worker again, and waits until one is free. The handler must
// call it before it goes on; it takes no memory back.
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

// release gives back what Take has set aside.
func (a *Account) release() {
	for i, p := range []*pool{&a.hub.strangers, &a.hub.memory} {
		if a.held[i] != 0 {
			p.release(a.source, a.held[i])
			a.held[i] = 0
		}
	}
}
