package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// requestWait bounds one request where nothing is made to fail.
const requestWait = 5 * time.Second

// rate makes short connections as fast as some clients can.
func rate(ctx context.Context, b *bench) (result, error) {
	before, err := b.usage()
	if err != nil {
		return nil, err
	}

	var (
		begun, failed atomic.Int64
		took          samples
		clients       sync.WaitGroup
	)

	began := time.Now()
	for range b.o.workers {
		clients.Go(func() {
			r := newRequester()
			var own []float64
			for begun.Add(1) <= int64(b.o.conns) && ctx.Err() == nil {
				start := time.Now()
				if _, err := r.short(b.target, requestWait); err != nil {
					failed.Add(1)
					continue
				}
				own = append(own, millis(time.Since(start)))
			}

			took.add(own...)
		})
	}

	clients.Wait()
	wall := time.Since(began)
	after, err := b.usage()
	if err != nil {
		return nil, err
	}

	all := took.all()
	r := result{"conns": len(all), "failed": failed.Load(), "per_s": float64(len(all)) / wall.Seconds(),
		"cpu_s_per_10k": 1e4 * per(after.CPU-before.CPU, len(all))}
	r.spread("ms", all)

	return r, ctx.Err()
}
