package auth

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// errBusy means that a gate's queue is full, or that a caller has waited too long.
var errBusy = errors.New("too much work at once")

// gate bounds how many callers work at once and how many wait. Overflow policy: a caller that finds
// the queue full, or has waited too long, is turned away and counted. Serving senders that have
// already given up would only prolong a storm.
type gate struct {
	slots      chan struct{}
	queue      int64
	wait       time.Duration
	waiting    atomic.Int64
	turnedAway atomic.Uint64 // callers turned away
}

func newGate(slots, queue int, wait time.Duration) *gate {
	return &gate{slots: make(chan struct{}, slots), queue: int64(queue), wait: wait}
}

// waitSlot waits for a slot. The caller calls leave to free the slot. waitSlot returns errBusy or
// the error of ctx.
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
