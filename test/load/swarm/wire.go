package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"saltern/master/zmtp"
	"saltern/test/minion"
)

// line is one connection for requests, opened when it is needed. It takes one
// request at a time.
type line struct {
	identity string
	conn     *zmtp.Req
}

func newLine(id string) *line {
	return &line{identity: fmt.Sprintf("salt-req/minion/%s/%d/%s", id, os.Getpid(), minion.Nonce())}
}

// close hangs up; the next request connects again.
func (l *line) close() {
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// wire decides over which connection a request travels.
type wire struct {
	addr  string
	wait  time.Duration // for one answer
	tries int           // for one question
	fresh bool
	pool  chan *line   // nil: each minion has its own
	again atomic.Int64 // questions that were asked once more
}

func newWire(addr, connections string, wait time.Duration, tries int) (*wire, error) {
	w := &wire{addr: addr, wait: wait, tries: tries, fresh: connections == "fresh"}
	if count, ok := strings.CutPrefix(connections, "pool="); ok {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-req %s: not a number of connections", connections)
		}

		w.pool = make(chan *line, n)
		for i := range n {
			w.pool <- newLine("pool" + strconv.Itoa(i))
		}
	} else if !w.fresh && connections != "persist" {
		return nil, fmt.Errorf("-req %s: not persist, fresh or pool=K", connections)
	}

	return w, nil
}

// exchange sends a request and returns the answer. own is the connection of
// the minion that asks. A question without an answer is asked again when its time is
// over, with the same bytes (salt/channel/client.py _send_with_retry): that a master
// closes the connection tells a minion nothing, since libzmq connects again by itself.
func (w *wire) exchange(ctx context.Context, own *line, payload []byte) (b []byte, err error) {
	for try := 1; ; try++ {
		over := time.Now().Add(w.wait)
		b, err = w.once(ctx, own, payload)
		if err == nil || try == w.tries || ctx.Err() != nil {
			return b, err
		}
		w.again.Add(1)
		if !pause(ctx, time.Until(over)) {
			return nil, context.Cause(ctx)
		}
	}
}

func (w *wire) once(ctx context.Context, own *line, payload []byte) ([]byte, error) {
	if w.pool != nil {
		select {
		case own = <-w.pool:
			defer func() { w.pool <- own }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}

	if w.fresh {
		defer own.close()
	}

	ctx, cancel := context.WithTimeoutCause(ctx, w.wait, fmt.Errorf("no answer within %v", w.wait))
	defer cancel()
	b, err := w.ask(ctx, own, payload)
	if err != nil {
		own.close() // a late answer must not be taken for that of another request
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
	}

	return b, err
}

func (w *wire) ask(ctx context.Context, l *line, payload []byte) ([]byte, error) {
	if l.conn == nil {
		conn, err := zmtp.DialReq(ctx, w.addr,
			zmtp.DialConfig{Identity: l.identity, Limits: zmtp.Limits{Handshake: w.wait}})
		if err != nil {
			return nil, err
		}
		l.conn = conn
	}
	return l.conn.Do(ctx, payload)
}

// close ends the connections of the pool.
func (w *wire) close() {
	for range len(w.pool) {
		(<-w.pool).close()
	}
}
