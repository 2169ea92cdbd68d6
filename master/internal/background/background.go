// Package background runs work that is not bound to a request: goroutines that outlive the request
// which started them, and queued work of the master itself.
package background

import (
	"context"
	"sync"
)

// Pool runs runners for local clients. The runners outlive the clients' requests. Overflow policy:
// if all slots are taken, Go returns false, and its caller reports that to the client. Pool is safe
// for concurrent use.
type Pool struct {
	ctx   context.Context
	stop  context.CancelFunc
	slots chan struct{}
	waits chan struct{}
	wg    sync.WaitGroup
	mu    sync.Mutex
	ended bool
}

// New returns a Pool that runs at most slots functions at once.
func New(slots int) *Pool {
	ctx, stop := context.WithCancel(context.Background())
	return &Pool{ctx: ctx, stop: stop, slots: make(chan struct{}, slots), waits: make(chan struct{}, MaxWaits)}
}

// MaxWaits bounds the number of requests of tools that wait for a wheel function in Python. Each of
// them occupies a worker of the request port. Overflow policy: a further request is refused at
// once, and the tool reports that to its user.
const MaxWaits = 64

// Wait takes one of the MaxWaits slots. The caller must call leave to free the slot. ok is false if
// no slot is free.
func (p *Pool) Wait() (leave func(), ok bool) {
	select {
	case p.waits <- struct{}{}:
		return func() { <-p.waits }, true
	default:
		return nil, false
	}
}

// Ending returns a context that ends when the master begins to stop.
func (p *Pool) Ending() context.Context { return p.ctx }

// End cancels running work and the context that Ending returns. Close does the same.
func (p *Pool) End() { p.stop() }

// Go runs f in a slot, in a new goroutine. It returns false if all slots are taken or Close was
// called.
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

// Close cancels running work and waits for its end.
func (p *Pool) Close() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.stop()
	p.wg.Wait()
}
