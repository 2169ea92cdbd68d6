package pyhost

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// places limits how many workers run at once. A slot is here called a place. A caller waits in a
// queue for a place, until the caller's context ends. A quarter of the places is reserved for
// callers with a deadline, such as requests of minions. Callers without a deadline may be
// orchestrations, which occupy their places for hours.
type places struct {
	all chan struct{}
	// patient is a further limit for callers without a deadline: three quarters of the places.
	patient chan struct{}
	waiting atomic.Int64
	waited  atomic.Int64 // nanoseconds that callers have waited, in total
	left    atomic.Uint64
}

func newPlaces(n int) *places {
	return &places{
		all:     make(chan struct{}, n),
		patient: make(chan struct{}, max(1, n-n/4)),
	}
}

// waitPlace waits for a place. The caller must call leave to free the place.
func (p *places) waitPlace(ctx context.Context) (leave func(), err error) {
	began := time.Now()
	p.waiting.Add(1)
	defer func() {
		p.waiting.Add(-1)
		p.waited.Add(int64(time.Since(began)))
	}()

	lines := []chan struct{}{p.all}
	if _, hurries := ctx.Deadline(); !hurries {
		lines = []chan struct{}{p.patient, p.all}
	}

	leave = func() {}
	for _, line := range lines {
		select {
		case line <- struct{}{}:
			before := leave
			leave = func() { <-line; before() }
		case <-ctx.Done():
			leave()
			p.left.Add(1)
			return nil, fmt.Errorf("no Python was free within %s, %d are at work (saltern_runner_max): %w",
				time.Since(began).Round(time.Second), cap(p.all), context.Cause(ctx))
		}
	}

	return leave, nil
}
