package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/zmtp"
)

// clients are the well-behaved ones and the others. Their counters are for the
// report.
type clients struct {
	publish, request string // addresses of the balancer

	subscribed atomic.Int64 // now
	jobs       atomic.Int64
	redials    atomic.Int64
	asked      atomic.Int64
	failed     atomic.Int64 // requests without an answer
	wrong      atomic.Int64 // answers to something else
	abused     atomic.Int64

	mu    sync.Mutex
	quiet time.Time // faults are over since (zero: one is going on)
	lost  []string  // failures while no fault was going on, the first few
}

// fault notes that a fault begins or has ended.
func (c *clients) fault(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quiet = time.Time{}
	if !on {
		c.quiet = time.Now()
	}
}

// calm is how long after a fault a lost request is still the fault's doing.
const calm = 10 * time.Second

// miss counts a request without an answer that began at that time.
func (c *clients) miss(began time.Time, err error) {
	c.failed.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.quiet.IsZero() && began.Sub(c.quiet) > calm && len(c.lost) < 20 {
		c.lost = append(c.lost, fmt.Sprintf("%s: %v", began.Format(time.TimeOnly), err))
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// hold keeps one subscription, as a minion does.
func (c *clients) hold(ctx context.Context) {
	for ctx.Err() == nil {
		c.subscription(ctx)
		c.redials.Add(1)
		pause(ctx, time.Duration(100+rand.IntN(900))*time.Millisecond)
	}
}

func (c *clients) subscription(ctx context.Context) {
	dctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	s, err := zmtp.DialSub(dctx, c.publish, zmtp.DialConfig{}, "")
	cancel()
	if err != nil {
		return
	}
	defer s.Close()

	c.subscribed.Add(1)
	defer c.subscribed.Add(-1)
	for {
		if _, err := s.Next(ctx); err != nil {
			return
		}
		c.jobs.Add(1)
	}
}

// keep asks on one connection, about rate times a second.
func (c *clients) keep(ctx context.Context, rate float64) {
	for ctx.Err() == nil {
		c.requests(ctx, 1<<30, rate)
		pause(ctx, 100*time.Millisecond)
	}
}

// short makes connections for one request each.
func (c *clients) short(ctx context.Context, rate float64) {
	for pause(ctx, time.Duration(float64(time.Second)/rate)) {
		c.requests(ctx, 1, 0)
	}
}

func (c *clients) requests(ctx context.Context, n int, rate float64) {
	began := time.Now()
	dctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()

	r, err := zmtp.DialReq(dctx, c.request, zmtp.DialConfig{})
	if err != nil {
		if ctx.Err() == nil {
			c.miss(began, err)
		}
		return
	}
	defer r.Close()

	for i := range n {
		text := fmt.Appendf(nil, "%d %d %s", i, rand.Uint64(), bytes.Repeat([]byte{'x'}, rand.IntN(4000)))
		began = time.Now()
		rctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		got, err := r.Do(rctx, text)
		cancel()

		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.miss(began, err)
			return
		case !bytes.Equal(got, text):
			c.wrong.Add(1)
		}

		c.asked.Add(1)
		if rate > 0 && !pause(ctx, time.Duration((0.5+rand.Float64())*float64(time.Second)/rate)) {
			return
		}
	}
}

// greeting is ZMTP 3.1 with the NULL mechanism (RFC 37), READY a subscriber's.
func greeting() []byte {
	g := make([]byte, 64)
	g[0] = 0xff
	g[9] = 0x7f
	g[10] = 3
	g[11] = 1
	copy(g[12:], "NULL")
	return g
}

var ready = []byte("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ")

// abuse does one bad thing after the other.
func (c *clients) abuse(ctx context.Context) {
	for ctx.Err() == nil {
		addr := c.request
		if rand.IntN(2) == 0 {
			addr = c.publish
		}

		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", addr)
		if err != nil {
			pause(ctx, time.Second)
			continue
		}

		c.misbehave(ctx, conn.(*net.TCPConn))
		conn.Close()
		c.abused.Add(1)
	}
}

func (c *clients) misbehave(ctx context.Context, conn *net.TCPConn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	write := func(b []byte) bool { _, err := conn.Write(b); return err == nil }
	reset := func() { _ = conn.SetLinger(0) }
	switch rand.IntN(10) {
	case 0: // nothing at all
		pause(ctx, time.Duration(rand.IntN(15000))*time.Millisecond)
	case 1: // a greeting byte by byte
		for _, b := range greeting() {
			if !write([]byte{b}) || !pause(ctx, 200*time.Millisecond) {
				break
			}
		}
	case 2:
		reset() // at once
	case 3: // in the middle of a greeting
		write(greeting()[:20])
		pause(ctx, 50*time.Millisecond)
		reset()
	case 4: // in the middle of a frame
		write(append(greeting(), ready...))
		pause(ctx, 100*time.Millisecond)
		write([]byte{2, 0, 0, 0, 0, 0, 1, 0, 0, 'x'})
		pause(ctx, 100*time.Millisecond)
		reset()
	case 5: // half-closed at once, then waits
		write(greeting())
		_ = conn.CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	case 6: // half-closed, then reset
		_ = conn.CloseWrite()
		pause(ctx, 50*time.Millisecond)
		reset()
	case 7: // garbage, as much as it is let
		junk := make([]byte, 64<<10)
		for range 64 {
			if !write(junk) {
				break
			}
		}
	case 8: // asks for much and goes
		c.askBig(ctx, conn, 0)
		reset()
	case 9: // asks for much and reads slowly
		c.askBig(ctx, conn, 2*time.Second)
	}
}

// askBig asks for a big answer and reads some of it slowly for a time.
func (c *clients) askBig(ctx context.Context, conn *net.TCPConn, read time.Duration) {
	_ = conn.SetReadBuffer(4096)
	if _, err := conn.Write(greeting()); err != nil {
		return
	}

	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(conn, make([]byte, 64)); err != nil {
		return
	}

	if _, err := conn.Write(append(append([]byte{}, ready...), "\x01\x00\x00\x03big"...)); err != nil {
		return
	}

	pause(ctx, 200*time.Millisecond)
	b := make([]byte, 16<<10)
	for end := time.Now().Add(read); time.Now().Before(end); {
		if _, err := conn.Read(b); err != nil || !pause(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// bulk fetches big answers whole.
func (c *clients) bulk(ctx context.Context) {
	for pause(ctx, 3*time.Second) {
		began := time.Now()
		dctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		r, err := zmtp.DialReq(dctx, c.request, zmtp.DialConfig{})
		if err == nil {
			var got []byte
			if got, err = r.Do(dctx, big); err == nil {
				c.asked.Add(1)
				if len(got) != bigSize {
					c.wrong.Add(1)
				}
			}

			r.Close()
		}

		cancel()
		if err != nil && ctx.Err() == nil {
			c.miss(began, err)
		}
	}
}
