package minion

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"saltern/master/internal/request"
)

const (
	// minionTurns is how many costly requests of one minion run at once.
	minionTurns = 2
	// minionEffort bounds the work on the target of one of them.
	minionEffort = 3 * time.Second
	// minionWaits is how many more requests of a minion wait. A highstate asks for one thing after
	// the other.
	minionWaits = 32
)

// errCrowd refuses a request of a minion that has too many waiting.
var errCrowd = errors.New("too many requests of this minion wait")

// turns lets each minion run a few costly requests at once. Further ones are parked until it is
// their turn. Overflow policy: requests beyond minionWaits get no answer, so that the minion asks
// again. The zero value is ready.
type turns struct {
	mu       sync.Mutex
	byMinion map[string]*turn
}

type turn struct {
	slots chan struct{}
	users int // those that have a slot or wait
}

// waitTurn waits for a turn. The error leaves the request without an answer.
func (t *turns) waitTurn(ctx context.Context, c *request.Call) (leave func(), err error) {
	own := t.joinQueue(c.ID)
	if own == nil {
		return nil, fmt.Errorf("%w: %w", request.ErrSilence, errCrowd)
	}

	leave = func() {
		<-own.slots
		t.leaveQueue(c.ID, own)
	}

	select {
	case own.slots <- struct{}{}:
		return leave, nil
	default:
	}

	has := false
	err = c.Park(ctx, func(asked context.Context) error {
		select {
		case own.slots <- struct{}{}:
			has = true
			return nil
		case <-asked.Done():
			return request.ErrLeft
		}
	})

	switch {
	case err == nil:
		return leave, nil
	case has:
		leave()
	default:
		t.leaveQueue(c.ID, own)
	}

	return nil, unanswered(err)
}

// joinQueue adds a user to the turns of a minion and returns them, or nil when there are too many.
func (t *turns) joinQueue(id string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byMinion == nil {
		t.byMinion = map[string]*turn{}
	}

	own := t.byMinion[id]
	if own == nil {
		own = &turn{slots: make(chan struct{}, minionTurns)}
		t.byMinion[id] = own
	}

	if own.users >= minionTurns+minionWaits {
		return nil
	}

	own.users++
	return own
}

// leaveQueue removes a user.
func (t *turns) leaveQueue(id string, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own.users--
	if own.users == 0 {
		delete(t.byMinion, id)
	}
}
