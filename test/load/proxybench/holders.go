package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	holderWait = 2 * time.Second
	holderGap  = 100 * time.Millisecond // between tries to connect
)

// holders keep connections while a backend fails, and connect again when they
// are cut, as subscribers do.
type holders struct {
	b     *bench
	began time.Time
	group sync.WaitGroup
	end   context.CancelFunc

	mu    sync.Mutex
	first []int           // connections by backend, the first of each holder
	now   []int           // and at present
	cuts  []time.Duration // when a connection that was made again later had ended
	worst time.Duration   // without a connection
}

func newHolders(b *bench, began time.Time) *holders {
	n := len(b.backends.addrs)
	return &holders{b: b, began: began, first: make([]int, n), now: make([]int, n)}
}

// start begins to hold. stop must be called.
func (h *holders) start(ctx context.Context) {
	ctx, h.end = context.WithCancel(ctx)
	for range h.b.o.held {
		h.group.Go(func() { h.hold(ctx) })
	}
}

func (h *holders) stop() {
	h.end()
	h.group.Wait()
}

// hold is one holder.
func (h *holders) hold(ctx context.Context) {
	cut := time.Duration(-1) // the first connection follows no cut
	for ctx.Err() == nil {
		c, number, err := holdOn(h.b.target, holderWait)
		if err != nil || number >= len(h.now) {
			pause(ctx, holderGap)
			continue
		}

		h.joined(number, cut)
		hangUp := context.AfterFunc(ctx, func() { c.Close() })
		_, _ = io.Copy(io.Discard, c) // until it is cut
		hangUp()
		c.Close()
		cut = time.Since(h.began)
		h.mu.Lock()
		h.now[number]--
		h.mu.Unlock()
	}
}

func (h *holders) joined(number int, cut time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now[number]++
	if cut < 0 {
		h.first[number]++
		return
	}
	h.cuts = append(h.cuts, cut)
	h.worst = max(h.worst, time.Since(h.began)-cut)
}

// report says where the connections are, and when they were cut. It comes
// before stop.
func (h *holders) report(r result, fails time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r["held_start"], r["held_end"] = fmt.Sprint(h.first), fmt.Sprint(h.now)
	r["held_cut"], r["held_back_worst_s"] = len(h.cuts), h.worst.Seconds()
	if len(h.cuts) > 0 {
		first, last := bounds(h.cuts)
		r["held_first_cut_s"], r["held_last_cut_s"] = (first - fails).Seconds(), (last - fails).Seconds()
	}
}

func bounds(v []time.Duration) (least, most time.Duration) { return slices.Min(v), slices.Max(v) }
