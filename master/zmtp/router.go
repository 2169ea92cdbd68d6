package zmtp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// Handler answers one request. The Router calls it on one of a bounded number of workers, never
// twice at once for the same connection. payload is the frame after the empty delimiter and is
// valid until Handler returns. reply may be a part of payload, and must not be changed after
// Handler has returned. If ok is false, the Router sends nothing and closes the connection. ctx
// ends when the connection ends or the Router closes; work that must be finished even if nobody
// waits for the answer should use context.WithoutCancel.
type Handler func(ctx context.Context, p Peer, payload []byte) (reply []byte, ok bool)

// RouterConfig configures a Router.
type RouterConfig struct {
	Listen
	// Handler is required.
	Handler Handler
	// Concurrency is the number of handlers that run at once for authenticated peers and for peers
	// on this host. Default 256.
	Concurrency int
	// Strangers is the number of handlers that run at once for all other peers. Default 64.
	Strangers int
	// QueueWait is how long a request waits for a free worker. Default 10 s.
	QueueWait time.Duration
	// Busy returns the answer to a request that has waited for longer than QueueWait. If Busy is
	// nil or returns nil, the Router closes the connection, and the peer repeats the request after
	// its own timeout.
	Busy func(payload []byte) []byte
	// The Router calls Free with each reply of Handler when it no longer needs the reply's bytes.
	// If Free is set, a reply must not be a part of its request. Free may be nil.
	Free func(reply []byte)
	// WriteStall is how long a peer may accept no byte of a waiting reply before the Router closes
	// the peer's connection. Default 30 s.
	WriteStall time.Duration
}

// Router is a listener that answers requests, as the ROUTER socket on Salt's port 4506 does. Peers
// are REQ or DEALER sockets. The Router handles the requests of one connection one after the other
// and answers them in order. It reads the next request while it handles the present one, so that it
// can answer PINGs and notice a lost peer. All methods are safe for concurrent use.
type Router struct {
	hub     *hub
	cfg     RouterConfig
	workers *workers
	strange *workers // workers for requests of unauthenticated peers
	stopped sync.Once
	// ping is sent after every reply when there is a TTL. libzmq drops the TTL of a PING when the
	// next message arrives, and this host may vanish at any moment.
	ping []byte
}

// ListenRouter serves ln until Close is called or ctx ends. The Router takes ownership of ln.
func ListenRouter(ctx context.Context, ln net.Listener, cfg RouterConfig) (*Router, error) {
	if cfg.Handler == nil {
		return nil, errors.New("zmtp: router without a handler")
	}

	setDefault(&cfg.Concurrency, 256)
	setDefault(&cfg.Strangers, 64)
	setDefault(&cfg.QueueWait, 10*time.Second)
	setDefault(&cfg.WriteStall, 30*time.Second)
	r := &Router{
		cfg:     cfg,
		workers: newWorkers(cfg.Concurrency, cfg.QueueWait),
		strange: newWorkers(cfg.Strangers, cfg.QueueWait),
	}

	// The Router sends a reply only when the peer has accepted the previous one. So the queue needs
	// room for one reply of any size and some control frames.
	r.hub = newHub(ctx, ln, "ROUTER", cfg.Listen, 64<<20,
		outLimits{items: 16, bytes: 1 << 40, stall: cfg.WriteStall, rate: cfg.Limits.withDefaults(1).MinRate})
	if ttl := r.hub.cfg.Heartbeat.TTL; ttl > 0 {
		r.ping = pingFrame(ttl)
	}

	r.hub.serve = r.serveAsker
	r.hub.startLoops(ctx, r.Close)
	return r, nil
}

// Addr returns the address of the listener.
func (r *Router) Addr() net.Addr { return r.hub.listener.Addr() }

// Stats returns the counters.
func (r *Router) Stats() Stats {
	s := r.hub.count.snapshot()
	return s
}

// Close stops accepting connections, waits for running handlers and replies up to the linger time,
// ends all connections and waits for every goroutine. A second call does nothing.
func (r *Router) Close() {
	r.hub.close(func(m *member) <-chan struct{} {
		if c, ok := m.role.(*asker); ok {
			if wait := c.running(); wait != nil {
				return wait
			}
		}
		return m.outbox.pending()
	})
	r.stopped.Do(func() {
		r.workers.close()
		r.strange.close()
	})
}

// asker is a connection as the Router handles it.
type asker struct {
	router *Router
	member *member
	ctx    context.Context
	cancel context.CancelFunc

	mu   sync.Mutex
	work chan struct{} // closed when the running handler has returned; nil when none runs
}

func (c *asker) running() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.work
}

// serveAsker runs a connection after its handshake.
func (r *Router) serveAsker(m *member) error {
	c := &asker{router: r, member: m}
	m.peer.Account = &m.account
	c.ctx, c.cancel = context.WithCancel(r.hub.ctx)
	m.role = c
	m.ready.Store(true)
	var err error
	for err == nil {
		err = c.readRequest()
	}

	c.cancel()
	if work := c.running(); work != nil {
		<-work // the handler uses buffers of the connection and must not outlive the Router
	}

	return err
}

// readRequest reads a request and starts its handler.
func (c *asker) readRequest() error {
	req := &request{}
	if err := c.member.nextMessage(&req.message); err != nil {
		return err
	}

	if err := req.splitEnvelope(); err != nil {
		req.free()
		return err
	}

	if err := c.awaitTurn(); err != nil {
		req.free()
		return err
	}

	done := make(chan struct{})
	c.mu.Lock()
	c.work = done
	c.mu.Unlock()

	c.router.hub.count.requests.Add(1)
	workers := c.router.strange
	if c.member.account.trusted() {
		workers = c.router.workers
	}

	c.member.account.workers = workers
	err := workers.startTask(c.ctx, func() {
		c.handle(req)
		c.finish(done)
	})
	if err == nil {
		return nil
	}

	c.finish(done)
	if errors.Is(err, errBusy) {
		c.router.hub.count.busy.Add(1)
		c.router.hub.warnings.warn(c.router.hub.cfg.Log, "request refused: all workers busy",
			"peer", c.member.peer.Remote, "wait", c.router.cfg.QueueWait)
		if c.router.cfg.Busy != nil {
			if answer := c.router.cfg.Busy(req.payload); answer != nil {
				return c.sendReply(req, answer, nil)
			}
		}
	}

	req.free()
	return err
}

func (c *asker) finish(done chan struct{}) {
	c.mu.Lock()
	c.work = nil
	c.mu.Unlock()
	close(done)
}

// awaitTurn waits until the previous request of the connection is handled and its reply is sent.
func (c *asker) awaitTurn() error {
	c.member.deaf.Store(true)
	defer c.member.restartSilence()
	for _, wait := range []func() <-chan struct{}{c.running, c.member.outbox.pending} {
		if ch := wait(); ch != nil {
			select {
			case <-ch:
			case <-c.member.ended:
				return errClosed
			}
		}
	}
	return nil
}

// handle calls the handler on a worker and sends the reply.
func (c *asker) handle(req *request) {
	c.router.hub.count.working.Add(1)
	defer c.router.hub.count.working.Add(-1)
	defer func() {
		if p := recover(); p != nil {
			c.router.hub.count.panics.Add(1)
			c.router.hub.cfg.Log.Error("request handler panicked", "peer", c.member.peer.Remote,
				"panic", p, "stack", string(debug.Stack()))
			c.member.fail(errHandler)
			// Leave the request's memory to the garbage collector: a goroutine that the handler has
			// started may read the memory later.
			req.discharge()
		}
	}()

	defer c.member.account.release()
	reply, ok := c.router.cfg.Handler(c.ctx, c.member.peer, req.payload)
	if !ok {
		req.free()
		c.member.fail(nil)
		return
	}

	if err := c.sendReply(req, reply, c.router.cfg.Free); err != nil {
		c.router.hub.cfg.Log.Debug("reply not sent", "peer", c.member.peer.Remote, "error", err)
		if errors.Is(err, errNoRoom) {
			c.member.fail(err)
		}
	}
}

var errHandler = errors.New("zmtp: request handler failed")

// sendReply sends the reply b after the envelope of the request req. It takes ownership of req.
// free may be nil; otherwise sendReply calls free with b when b is no longer needed.
func (c *asker) sendReply(req *request, b []byte, free func([]byte)) error {
	ping := c.router.ping
	if c.member.minor == 0 {
		ping = nil
	}

	if len(b) > freeSize/2 { // b is too big to copy
		head := appendHeader(req.envelope(nil), 0, len(b))
		done := req.free
		if free != nil {
			req.free() // b is not a part of the request

			// A reply counts against the memory budget until it is written.
			p, _ := c.member.account.memoryPool()
			src, n := c.member.account.source, int64(len(b))
			if !p.reserve(src, n) {
				free(b)
				return fmt.Errorf("%w: an answer of %d bytes", errNoRoom, n)
			}

			done = func() { p.release(src, n); free(b) }
		}

		ps := []packet{{b: head}, {b: b, free: done}}
		if ping != nil {
			ps = append(ps, packet{b: ping})
		}

		return c.member.outbox.sendPackets(ps...)
	}

	defer req.free()
	buf := c.router.hub.pools.buffer(len(req.buf.b) - len(req.payload) + maxHeader*(len(req.ends)+1) +
		len(b) + len(ping))
	buf.b = append(append(appendHeader(req.envelope(buf.b), 0, len(b)), b...), ping...)

	if free != nil {
		free(b)
	}

	return c.member.outbox.sendPackets(packet{b: buf.b, free: buf.free})
}

// request is a message, split into envelope and payload.
type request struct {
	message
	payload []byte
}

// splitEnvelope sets payload to the frame after the first empty one. It returns an error unless
// that frame is the last.
func (q *request) splitEnvelope() error {
	for i := range q.ends {
		if len(q.frameAt(i)) > 0 {
			continue
		}
		if i != len(q.ends)-2 {
			break
		}
		q.payload = q.frameAt(i + 1)
		return nil
	}
	return violation("request of %d frames without an empty frame before the last", len(q.ends))
}

// envelope appends the frames up to and including the empty frame, unchanged.
func (q *request) envelope(dst []byte) []byte {
	for i := range len(q.ends) - 1 {
		f := q.frameAt(i)
		dst = append(appendHeader(dst, flagMore, len(f)), f...)
	}
	return dst
}
