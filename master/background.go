package master

import (
	"context"
	"sync"
)

// background owns the goroutines that outlive the request that started them:
// runners of local clients, reactions to events. Overflow policy: when all
// slots are taken, Go refuses and the caller says so.
type background struct {
	ctx   context.Context
	stop  context.CancelFunc
	slots chan struct{}
	waits chan struct{}
	wg    sync.WaitGroup
	mu    sync.Mutex
	ended bool
}

func newBackground(slots int) *background {
	ctx, stop := context.WithCancel(context.Background())
	return &background{ctx: ctx, stop: stop, slots: make(chan struct{}, slots), waits: make(chan struct{}, maxWaits)}
}

// maxWaits bounds the requests of minions that wait for the work of others:
// for the returns of a job, for a runner. Each holds a worker of the request
// port, of which there are more than these; returns and sign-ins need the
// rest. Overflow policy: the newest is refused at once.
const maxWaits = 64

// Wait takes a place among those that wait, and gives it back by leave.
func (b *background) Wait() (leave func(), ok bool) {
	select {
	case b.waits <- struct{}{}:
		return func() { <-b.waits }, true
	default:
		return nil, false
	}
}

// Go runs f unless all slots are taken or Close was called.
func (b *background) Go(f func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	select {
	case b.slots <- struct{}{}:
	default:
		return false
	}
	b.wg.Go(func() {
		defer func() { <-b.slots }()
		f(b.ctx)
	})
	return true
}

// Close cancels what runs and waits for it.
func (b *background) Close() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.stop()
	b.wg.Wait()
}
