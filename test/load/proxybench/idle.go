package main

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"saltern/test/load/proctree"
)

const (
	castBytes = 1024
	castWait  = 10 * time.Second // for a broadcast to arrive everywhere
	castGap   = 200 * time.Millisecond
	holdWait  = 10 * time.Second
	holdAt    = 64 // connections that are being opened at once
)

// audience is many held connections that wait for broadcasts.
type audience struct {
	readers sync.WaitGroup
	got     atomic.Int64 // messages of this broadcast
	last    atomic.Int64 // when the latest came, in nanoseconds since 1970
	took    samples      // of each message

	mu    sync.Mutex
	conns []net.Conn
	per   []int // connections by backend
}

// idle holds connections, looks at what that costs, and broadcasts to them.
func idle(ctx context.Context, b *bench, n int) (result, error) {
	before, err := b.usage()
	if err != nil {
		return nil, err
	}

	a := &audience{per: make([]int, len(b.backends.addrs))}
	defer a.close()
	began := time.Now()
	failed := a.gather(b.target, n)
	r := result{"setup_s": time.Since(began).Seconds(), "held": n - failed, "failed": failed, "per_backend": a.per}
	pause(ctx, b.o.rest)
	held, err := b.usage()
	if err != nil {
		return nil, err
	}

	r["setup_cpu_s"] = held.CPU - before.CPU
	r["threads"], r["fds_idle"] = held.Threads, held.Descriptors
	r["fds_per_conn"] = per(float64(held.Descriptors-before.Descriptors), n-failed)
	r["kb_per_conn_idle"] = kibEach(before, held, n-failed)
	pause(ctx, b.o.rest)
	rested, err := b.usage()
	if err != nil {
		return nil, err
	}

	r["idle_cpu_pct"] = 100 * (rested.CPU - held.CPU) / b.o.rest.Seconds()
	if err := a.casts(ctx, b, r); err != nil {
		return nil, err
	}

	after, err := b.usage()
	if err != nil {
		return nil, err
	}

	r["cast_cpu_ms_per_10k_msgs"] = 1e7 * per(after.CPU-rested.CPU, (n-failed)*b.o.casts)
	r["kb_per_conn_after_casts"] = kibEach(before, after, n-failed)
	r["fds_after_casts"] = after.Descriptors
	a.close()
	pause(ctx, b.o.rest)
	end, err := b.usage()
	if err != nil {
		return nil, err
	}

	r["pss_kb_after_close"], r["fds_after_close"] = int(1024*end.PSS), end.Descriptors
	return r, ctx.Err()
}

func kibEach(before, after proctree.Usage, n int) float64 { return per(1024*(after.PSS-before.PSS), n) }

// gather opens the connections, and returns how many failed.
func (a *audience) gather(target string, n int) int {
	var failed atomic.Int64
	var group sync.WaitGroup
	gate := make(chan struct{}, holdAt)
	for range n {
		gate <- struct{}{}
		group.Go(func() {
			defer func() { <-gate }()
			if err := a.join(target); err != nil {
				failed.Add(1)
			}
		})
	}

	group.Wait()
	return int(failed.Load())
}

func (a *audience) join(target string) error {
	c, number, err := holdOn(target, holdWait)
	if err != nil {
		return err
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	if number >= len(a.per) {
		c.Close()
		return errWrong
	}

	a.per[number]++
	a.conns = append(a.conns, c)
	a.readers.Go(func() { a.listen(c) })
	return nil
}

func (a *audience) listen(c net.Conn) {
	var message [castBytes]byte
	for {
		if _, err := io.ReadFull(c, message[:]); err != nil {
			return
		}
		now := time.Now().UnixNano()
		a.took.add(float64(now-int64(binary.BigEndian.Uint64(message[:]))) / 1e6)
		a.last.Store(now)
		a.got.Add(1)
	}
}

// casts sends the broadcasts and waits for each to arrive.
func (a *audience) casts(ctx context.Context, b *bench, r result) error {
	var whole []float64
	for range b.o.casts {
		a.got.Store(0)
		cast, err := b.backends.do(order{Do: "broadcast", Bytes: castBytes})
		if err != nil {
			return err
		}

		want := int64(len(a.conns))
		for end := time.Now().Add(castWait); a.got.Load() < want && time.Now().Before(end) && ctx.Err() == nil; {
			time.Sleep(time.Millisecond)
		}

		if got := a.got.Load(); got < want {
			r["lost"] = want - got
		}

		whole = append(whole, float64(a.last.Load()-cast.Start)/1e6)
		pause(ctx, castGap)
	}

	r.spread("cast_ms", whole)
	r.spread("deliver_ms", a.took.all())
	return nil
}

// close hangs up. It may be called again.
func (a *audience) close() {
	for _, c := range a.conns {
		c.Close()
	}
	a.readers.Wait()
}
