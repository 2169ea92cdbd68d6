package auth

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// errBusy means that a gate's queue is full, or that a caller has waited in the queue too long.
var errBusy = errors.New("too much work at once")

// gate bounds how many callers work at once and how many wait. Overflow policy: a caller that finds
// the queue full, or has waited too long, is refused and counted. The minion of a caller that has
// waited too long has probably given up, and serving that caller would only prolong the overload.
type gate struct {
	slots      chan struct{}
	queue      int64
	wait       time.Duration
	waiting    atomic.Int64
	turnedAway atomic.Uint64 // callers refused
}

func newGate(slots, queue int, wait time.Duration) *gate {
	return &gate{slots: make(chan struct{}, slots), queue: int64(queue), wait: wait}
}

// waitSlot waits for a slot. It returns errBusy, or the error of ctx. On success the caller must
// call leave to free the slot.
func (g *gate) waitSlot(ctx context.Context) (leave func(), err error) {
	select {
	case g.slots <- struct{}{}:
		return g.freeSlot, nil
	default:
	}

	if g.waiting.Add(1) > g.queue {
		g.waiting.Add(-1)
		g.turnedAway.Add(1)
		return nil, errBusy
	}
	defer g.waiting.Add(-1)

	t := time.NewTimer(g.wait)
	defer t.Stop()
	select {
	case g.slots <- struct{}{}:
		return g.freeSlot, nil
	case <-t.C:
		g.turnedAway.Add(1)
		return nil, errBusy
	case <-ctx.Done():
		g.turnedAway.Add(1)
		return nil, ctx.Err()
	}
}

func (g *gate) freeSlot() { <-g.slots }
