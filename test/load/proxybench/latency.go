package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// latency sends requests at a fixed rate over kept connections. The time of a
// request counts from when it was due, so that a stall is not hidden by the
// requests that were not made meanwhile.
func latency(ctx context.Context, b *bench, rate int) (result, error) {
	conns := make([]net.Conn, b.o.kept)
	for i := range conns {
		c, err := net.DialTimeout("tcp", b.target, requestWait)
		if err != nil {
			return nil, fmt.Errorf("keep a connection: %w", err)
		}
		defer c.Close()

		if _, err := c.Write([]byte{askEcho}); err != nil {
			return nil, fmt.Errorf("keep a connection: %w", err)
		}

		conns[i] = c
	}

	pause(ctx, 300*time.Millisecond)
	before, err := b.usage()
	if err != nil {
		return nil, err
	}

	var (
		failed  atomic.Int64
		took    samples
		clients sync.WaitGroup
	)

	began := time.Now()
	step := time.Second * time.Duration(len(conns)) / time.Duration(rate)
	for i, c := range conns {
		clients.Go(func() {
			first := began.Add(step * time.Duration(i) / time.Duration(len(conns)))
			values, err := paced(ctx, c, first, began.Add(b.o.length), step)
			if err != nil {
				failed.Add(1)
			}
			took.add(values...)
		})
	}

	clients.Wait()
	after, err := b.usage()
	if err != nil {
		return nil, err
	}

	all := took.all()
	r := result{"rate": rate, "kept": len(conns), "requests": len(all), "failed": failed.Load(),
		"cpu_ms_per_10k_req": 1e7 * per(after.CPU-before.CPU, len(all))}
	r.spread("ms", all)

	return r, ctx.Err()
}

// paced makes a request whenever one is due, and ends at the first failure.
func paced(ctx context.Context, c net.Conn, due, end time.Time, step time.Duration) (took []float64, err error) {
	r := newRequester()
	for due.Before(end) {
		if !pause(ctx, time.Until(due)) {
			return took, nil
		}

		if err := c.SetDeadline(due.Add(2 * requestWait)); err != nil {
			return took, err
		}

		if _, err := r.ask(c); err != nil {
			return took, err
		}

		took = append(took, millis(time.Since(due)))
		due = due.Add(step)
	}

	return took, nil
}
