package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// timing is how long requests took: latency holds the milliseconds of each
// that succeeded.
type timing struct {
	latency []float64
	wall    time.Duration
}

// crowd does work 0 to n-1, so many at once, and counts what fails.
func (s *swarm) crowd(ctx context.Context, n, atOnce int, work func(i int) error) timing {
	var (
		t     timing
		mu    sync.Mutex // guards t.latency
		group sync.WaitGroup
		next  atomic.Int64
	)

	began := time.Now()
	for range min(atOnce, n) {
		group.Go(func() {
			var own []float64
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					break
				}

				start := time.Now()
				if err := work(i); err != nil {
					s.errs.add(err)
					continue
				}

				own = append(own, millis(time.Since(start)))
			}

			mu.Lock()
			t.latency = append(t.latency, own...)
			mu.Unlock()
		})
	}

	group.Wait()
	t.wall = time.Since(began)
	if begun := min(int(next.Load()), n); begun < n {
		s.errs.add(fmt.Errorf("%w: %d of %d were begun", context.Cause(ctx), begun, n))
	}

	return t
}

func millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
