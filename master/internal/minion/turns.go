package minion

import (
	"context"
	"sync"
	"time"

	"saltern/master/internal/request"
)

const (
	// minionTurns is how many costly requests of one minion are at work at once.
	minionTurns = 2
	// minionEffort bounds the work on the target of one of them.
	minionEffort = 3 * time.Second
	// turnWait is how long a further one waits.
	turnWait = 20 * time.Second
)

// turns lets each minion have a few costly requests at work at once. Further ones
// wait for their turn, each in a worker of the request port; what waits is bounded
// by those. The zero value is ready.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

type turn struct {
	slots chan struct{}
	users int // those that have a slot or wait
}

// enter waits for a turn. It reports false when none came or the asker has left.
func (t *turns) enter(ctx context.Context, id string) (leave func(), ok bool) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[string]*turn{}
	}
	x := t.of[id]
	if x == nil {
		x = &turn{slots: make(chan struct{}, minionTurns)}
		t.of[id] = x
	}
	x.users++
	t.mu.Unlock()
	done := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if x.users--; x.users == 0 {
			delete(t.of, id)
		}
	}
	work, stop := request.WhileAsked(ctx)
	defer stop()
	wait := time.NewTimer(turnWait)
	defer wait.Stop()
	select {
	case x.slots <- struct{}{}:
		return func() { <-x.slots; done() }, true
	case <-work.Done():
	case <-wait.C:
	}
	done()
	return nil, false
}
