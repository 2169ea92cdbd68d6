package zmtp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// DialConfig configures the clients Req and Sub.
type DialConfig struct {
	Limits Limits // only MaxMessage, MaxFrames, Handshake and the pace apply
	// If Heartbeat.Interval is set, the client sends PINGs, and closes the connection to a server
	// that is silent for Heartbeat.Timeout (default 3 × Interval). With any Heartbeat, the client
	// answers PINGs of the server, and closes the connection when the server is silent for longer
	// than the TTL in the server's PING, as libzmq does.
	Heartbeat Heartbeat
	// Identity is the routing id that the client sends to the server. Default empty.
	Identity string
	// Dialer opens the connection. Default: the zero net.Dialer.
	Dialer net.Dialer
}

// client is the common part of Req and Sub: a link and the goroutines that serve it.
type client struct {
	link
	group  sync.WaitGroup
	lim    Limits
	memory pool
	expiry *time.Timer // set by extendExpiry; used by the reading goroutine only
}

// connect connects to addr, "host:port" or "unix:path", and exchanges greeting and READY.
// socketType is the socket type of this end.
func (c *client) connect(ctx context.Context, socketType, addr string, cfg DialConfig) error {
	network := "tcp"
	if path, ok := cutUnix(addr); ok {
		network, addr = "unix", path
	}

	conn, err := cfg.Dialer.DialContext(ctx, network, addr)
	if err != nil {
		return fmt.Errorf("zmtp: dial: %w", err)
	}

	c.lim = cfg.Limits.withDefaults(64 << 20)
	c.memory.max, c.memory.times = c.lim.MaxInflight, c.lim.MaxInflight // only this client uses the pool
	c.init(conn, &c.lim, newPools(), func() (*pool, netip.Addr) { return &c.memory, netip.Addr{} },
		outLimits{items: 16, bytes: 1 << 40, stall: 30 * time.Second}, c.group.Go)
	c.peer.Remote = remote(conn)
	c.expire = c.extendExpiry
	stop := context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })
	err = conn.SetReadDeadline(time.Now().Add(c.lim.Handshake))
	if err == nil {
		err = c.handshake(socketType, cfg.Identity)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}

	if !stop() && err == nil {
		err = ctx.Err()
	}

	if err != nil {
		err = c.closeCause(err)
		c.fail(err)
		c.group.Wait()
		return fmt.Errorf("zmtp: handshake with %s: %w", addr, err)
	}

	if cfg.Heartbeat.Interval > 0 {
		setDefault(&cfg.Heartbeat.Timeout, 3*cfg.Heartbeat.Interval)
		c.group.Go(func() { c.heartbeatLoop(cfg.Heartbeat) })
	}

	return nil
}

func cutUnix(addr string) (string, bool) {
	if len(addr) > 5 && addr[:5] == "unix:" {
		return addr[5:], true
	}
	return addr, false
}

func (c *client) heartbeatLoop(h Heartbeat) {
	t := time.NewTicker(h.Interval)
	defer t.Stop()
	ping := pingFrame(h.TTL)
	for {
		select {
		case <-c.ended:
			return
		case now := <-t.C:
			c.heartbeat(now, h.Timeout, ping)
		}
	}
}

// extendExpiry moves the deadline of the server's silence: the client closes the connection unless
// the server sends something within ttl. Only the reading goroutine calls extendExpiry.
func (c *client) extendExpiry(ttl time.Duration) {
	switch {
	case ttl <= 0:
	case c.expiry == nil:
		c.expiry = time.AfterFunc(ttl, func() {
			if !c.deaf.Load() && time.Since(time.Unix(0, c.reader.seen.Load())) >= ttl {
				c.fail(errSilent)
			}
		})
	default:
		c.expiry.Reset(ttl)
	}
}

// closeAndWait closes the connection and waits for the goroutines.
func (c *client) closeAndWait() {
	c.fail(nil)
	c.group.Wait()
	if c.expiry != nil {
		c.expiry.Stop()
	}
}

// Req is a client of a Router (or any ZMTP ROUTER or REP socket). It sends one request at a time.
// It is safe for concurrent use; concurrent requests wait for each other. A failed request closes
// the connection, because the client could take a late answer for the answer to the next request.
// The caller must then dial again.
type Req struct {
	client
	turn    chan struct{} // capacity 1; the running Do holds its element
	asked   atomic.Bool   // a request waits for its answer
	replies chan []byte
}

// DialReq connects to addr, "host:port" or "unix:path". ctx bounds dialling and the handshake, not
// the connection.
func DialReq(ctx context.Context, addr string, cfg DialConfig) (*Req, error) {
	r := &Req{turn: make(chan struct{}, 1), replies: make(chan []byte)}
	if err := r.connect(ctx, "REQ", addr, cfg); err != nil {
		return nil, err
	}
	r.group.Go(r.readReplies)
	return r, nil
}

// Do sends payload as a request and returns the answer. If ctx ends before the answer arrives, Do
// closes the connection.
func (r *Req) Do(ctx context.Context, payload []byte) ([]byte, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("zmtp: request: %w", ctx.Err())
	}

	r.asked.Store(true)
	buf := appendMessage(make([]byte, 0, len(payload)+2+maxHeader), nil, payload)
	if err := r.outbox.sendPackets(packet{b: buf}); err != nil {
		return nil, fmt.Errorf("zmtp: request: %w", r.closeCause(err))
	}

	select {
	case b := <-r.replies:
		return b, nil
	case <-ctx.Done():
		r.fail(ctx.Err())
		return nil, fmt.Errorf("zmtp: request: %w", ctx.Err())
	case <-r.ended:
		return nil, fmt.Errorf("zmtp: request: %w", r.closeCause(nil))
	}
}

func (r *Req) readReplies() {
	var q request
	for {
		err := r.nextMessage(&q.message)
		if err == nil {
			err = q.splitEnvelope()
		}

		if err == nil && !r.asked.CompareAndSwap(true, false) {
			err = violation("answer without a question")
		}

		if err != nil {
			r.fail(err)
			r.reader.close()
			return
		}

		b := append([]byte(nil), q.payload...)
		q.free()
		select {
		case r.replies <- b:
		case <-r.ended:
		}
	}
}

// Alive reports whether the connection is open.
func (r *Req) Alive() bool {
	select {
	case <-r.ended:
		return false
	default:
		return true
	}
}

// Close ends the connection. A running Do returns an error.
func (r *Req) Close() { r.closeAndWait() }

// Sub is a client that receives the messages of a Pub.
type Sub struct {
	client
	messages chan [][]byte

	mu     sync.Mutex
	topics map[string]int // number of subscriptions by topic
}

// subQueue is the number of received messages that may wait for a call of Next. When the queue is
// full, the client stops reading the connection.
const subQueue = 64

// DialSub connects to addr, "host:port" or "unix:path", and subscribes to the topics. The topic ""
// matches every message; without topics the client gets nothing. ctx bounds dialling and the
// handshake, not the connection.
func DialSub(ctx context.Context, addr string, cfg DialConfig, topics ...string) (*Sub, error) {
	s := &Sub{messages: make(chan [][]byte, subQueue), topics: map[string]int{}}
	if err := s.connect(ctx, "SUB", addr, cfg); err != nil {
		return nil, err
	}
	s.group.Go(s.readMessages)
	for _, t := range topics {
		if err := s.Subscribe(t); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Subscribe adds a topic.
func (s *Sub) Subscribe(topic string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topics[topic]++
	if s.topics[topic] > 1 {
		return nil
	}
	return s.change("SUBSCRIBE", 1, topic)
}

// Unsubscribe cancels one subscription to a topic. A topic that was subscribed to twice must be
// cancelled twice.
func (s *Sub) Unsubscribe(topic string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.topics[topic]
	if !ok {
		return nil
	}
	if n > 1 {
		s.topics[topic] = n - 1
		return nil
	}
	delete(s.topics, topic)
	return s.change("CANCEL", 0, topic)
}

// change sends a subscription or a cancellation: as a command to a ZMTP 3.1 peer, as a message to a
// ZMTP 3.0 peer.
func (s *Sub) change(command string, first byte, topic string) error {
	var b []byte
	if s.minor > 0 {
		b = appendCommand(nil, command, []byte(topic))
	} else {
		b = appendMessage(nil, append([]byte{first}, topic...))
	}
	if err := s.outbox.sendPackets(packet{b: b}); err != nil {
		return fmt.Errorf("zmtp: subscribe: %w", s.closeCause(err))
	}
	return nil
}

// Next waits for the next message and returns it, one slice per frame. It returns the error of ctx,
// or the reason why the connection ended.
func (s *Sub) Next(ctx context.Context) ([][]byte, error) {
	select {
	case m := <-s.messages:
		return m, nil
	default:
	}

	select {
	case m := <-s.messages:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended:
	}

	select {
	case m := <-s.messages: // the message arrived before the connection ended
		return m, nil
	default:
		return nil, s.closeCause(errors.New("zmtp: connection ended"))
	}
}

func (s *Sub) readMessages() {
	var m message
	for {
		if err := s.nextMessage(&m); err != nil {
			s.fail(err)
			s.reader.close()
			return
		}

		all := append([]byte(nil), m.buf.b...)
		frames := make([][]byte, len(m.ends))
		start := 0
		for i, end := range m.ends {
			frames[i] = all[start:end:end]
			start = end
		}

		m.free()
		s.deaf.Store(true)
		select {
		case s.messages <- frames:
		case <-s.ended:
		}

		s.restartSilence()
	}
}

// Close ends the connection.
func (s *Sub) Close() { s.closeAndWait() }
