// Package background owns the goroutines that outlive the request that started
// them, and bounds the requests that wait for the work of others.
package background

import (
	"context"
	"sync"
)

// Pool runs what outlives its request: runners of local clients, reactions to
// events. Overflow policy: when all slots are taken, Go refuses and the caller
// says so. It is safe for concurrent use.
type Pool struct {
	ctx   context.Context
	stop  context.CancelFunc
	slots chan struct{}
	waits chan struct{}
	wg    sync.WaitGroup
	mu    sync.Mutex
	ended bool
}

// New makes a Pool with so many slots.
func New(slots int) *Pool {
	ctx, stop := context.WithCancel(context.Background())
	return &Pool{ctx: ctx, stop: stop, slots: make(chan struct{}, slots), waits: make(chan struct{}, MaxWaits)}
}

// MaxWaits bounds the requests of minions that wait for the work of others:
// for the returns of a job, for a runner. Each holds a worker of the request
// port, of which there are more than these; returns and sign-ins need the
// rest. Overflow policy: the newest is refused at once.
const MaxWaits = 64

// Wait takes a place among those that wait; leave gives it back.
func (p *Pool) Wait() (leave func(), ok bool) {
	select {
	case p.waits <- struct{}{}:
		return func() { <-p.waits }, true
	default:
		return nil, false
	}
}

// Go runs f unless all slots are taken or Close was called.
func (p *Pool) Go(f func(ctx context.Context)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	select {
	case p.slots <- struct{}{}:
	default:
		return false
	}
	p.wg.Go(func() {
		defer func() { <-p.slots }()
		f(p.ctx)
	})
	return true
}

// Close cancels what runs and waits for it.
func (p *Pool) Close() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.stop()
	p.wg.Wait()
}
