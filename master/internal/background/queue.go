package background

import (
	"context"
	"errors"

	"golang.org/x/sync/semaphore"
)

// Queue runs work whose callers wait for it: a bounded number at once, the others in the order of their arrival.
// Overflow policy: when as many wait as may wait, Do refuses. Queue is safe for concurrent use.
type Queue struct {
	places *semaphore.Weighted // of those that wait or are at work
	turns  *semaphore.Weighted // of those that are at work
}

// ErrFull is returned by Queue.Do when as many callers wait as may wait.
var ErrFull = errors.New("too many wait")

// NewQueue returns a Queue that works for atOnce callers at once, while up to waiting others wait.
func NewQueue(atOnce, waiting int64) *Queue {
	return &Queue{
		places: semaphore.NewWeighted(atOnce + waiting),
		turns:  semaphore.NewWeighted(atOnce),
	}
}

// Do calls work when it is the caller's turn. It returns an error if work was not called: ErrFull, or that of ctx,
// which ended first.
func (q *Queue) Do(ctx context.Context, work func()) error {
	if !q.places.TryAcquire(1) {
		return ErrFull
	}
	defer q.places.Release(1)

	if err := q.turns.Acquire(ctx, 1); err != nil {
		return err
	}
	defer q.turns.Release(1)

	work()
	return nil
}
