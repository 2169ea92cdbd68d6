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
	// minionEffort bounds the time to resolve the target of one costly request.
	minionEffort = 3 * time.Second
	// minionWaits is how many further requests of a minion may wait. It can be small: a highstate
	// sends one request after the other.
	minionWaits = 32
)

// errCrowd refuses a request because too many requests of the same minion are waiting.
var errCrowd = errors.New("too many requests of this minion wait")

// turns limits how many costly requests of each minion run at once. Further requests are parked
// until a slot is free. Overflow policy: requests beyond minionWaits get no answer, so that the
// minion asks again. The zero value is ready to use.
type turns struct {
	mu       sync.Mutex
	byMinion map[string]*turn
}

type turn struct {
	slots chan struct{}
	users int // number of requests that have a slot or wait for one
}

// waitTurn waits for a slot of the minion. The caller must call leave to free the slot. If waitTurn
// returns an error, the request gets no answer.
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

// joinQueue counts a request in the turn of a minion and returns that turn, or nil if too many
// requests of the minion are waiting.
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

// leaveQueue stops counting a request in minionTurn, the turn of a minion.
func (t *turns) leaveQueue(id string, minionTurn *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	minionTurn.users--
	if minionTurn.users == 0 {
		delete(t.byMinion, id)
	}
}
