package zmtp

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"
)

// PubConfig configures a Pub.
type PubConfig struct {
	Listen
	// MaxQueue is the number of messages that may wait for one slow subscriber. The Pub drops
	// further messages for that subscriber. Default 1000 (Salt's pub_hwm).
	MaxQueue int
	// MaxQueueBytes bounds the bytes of the messages that wait for each subscriber. Subscribers
	// that wait for the same message share its memory. Default 16 MiB.
	MaxQueueBytes int
	// WriteStall is how long a subscriber may accept no bytes while bytes wait for it. After that
	// time the Pub closes the subscriber's connection. Default 30 s.
	WriteStall time.Duration
	// Shards is the number of goroutines that write. Default: the number of processors, at most 8.
	Shards int

	// The goroutine of a connection calls these hooks, so a hook delays only its own peer:
	// OnConnect after the handshake, OnSubscribe when a subscription is in force, and OnDisconnect
	// after the connection is closed. The topic "" matches every message. err is the cause of the
	// close, or nil when the peer or the Pub closed the connection without a fault.
	OnConnect    func(Peer)
	OnSubscribe  func(p Peer, topic string)
	OnDisconnect func(p Peer, err error)
}

// Pub is a listener that publishes, as the PUB socket on Salt's port 4505
// does. All methods are safe for concurrent use.
type Pub struct {
	hub    *hub
	cfg    PubConfig
	shards []*shard

	mu     sync.Mutex // held during each publication, so that all subscribers get the messages in the same order
	closed bool
}

// publication is a framed message, shared by all its receivers.
type publication struct {
	topic  []byte // the first frame of the message, cut to maxTopic bytes
	wire   []byte
	pinged []byte // the bytes of wire, followed by a PING
	// do marks the publication as a barrier, which has no bytes. The goroutine of each shard calls
	// do when it has handled all earlier publications.
	do func(*shard)
}

// ListenPub serves ln until Close is called or ctx ends. The Pub takes ownership of ln.
func ListenPub(ctx context.Context, ln net.Listener, cfg PubConfig) *Pub {
	setDefault(&cfg.MaxQueue, 1000)
	setDefault(&cfg.MaxQueueBytes, 16<<20)
	setDefault(&cfg.WriteStall, 30*time.Second)
	setDefault(&cfg.Shards, min(runtime.GOMAXPROCS(0), 8))
	p := &Pub{cfg: cfg}
	p.hub = newHub(ctx, ln, "PUB", cfg.Listen, 4096,
		outLimits{items: cfg.MaxQueue, bytes: cfg.MaxQueueBytes, stall: cfg.WriteStall})
	p.hub.serve = p.serveSubscriber

	for range cfg.Shards {
		s := &shard{
			count:   &p.hub.count,
			pings:   p.hub.pings,
			queue:   make(chan *publication, shardQueue),
			drained: make(chan struct{}),
		}

		p.shards = append(p.shards, s)
		p.hub.loops.Go(s.publishLoop)
	}

	p.hub.startLoops(ctx, p.Close)
	return p
}

// serveSubscriber runs a connection after its handshake. It reads subscriptions, which come as
// messages (ZMTP 3.0) or commands (ZMTP 3.1); a subscriber may send nothing else.
func (p *Pub) serveSubscriber(m *member) error {
	sub := &subscriber{member: m}
	sub.answered.Store(int64(time.Since(p.hub.pings.born)))
	m.role = sub
	m.onPong = func(context []byte) { p.hub.pings.answers(sub, context) }
	m.onCommand = func(name, body []byte) error {
		switch string(name) {
		case "SUBSCRIBE":
			return p.subscribe(sub, body)
		case "CANCEL":
			sub.topics.cancel(body)
			return nil
		}

		return violation("command %q from a subscriber", name)
	}

	m.ready.Store(true)
	if ping := p.hub.pings.following(); ping != nil {
		// A subscriber that has got no TTL yet never notices that its network was cut.
		m.heartbeat(time.Now(), p.hub.cfg.Heartbeat.Timeout, ping)
	}
	if p.cfg.OnConnect != nil {
		p.cfg.OnConnect(m.peer)
	}

	s := p.shardsOf(m.peer.ID)[0]
	s.addSubscriber(sub)
	err := p.listen(sub)
	s.remove(sub)

	if p.cfg.OnDisconnect != nil {
		m.fail(err)
		p.cfg.OnDisconnect(p.hub.pings.peerSeen(sub), public(m.closeCause(err)))
	}

	return err
}

func (p *Pub) listen(sub *subscriber) error {
	var msg message
	for {
		if err := sub.member.nextMessage(&msg); err != nil {
			return err
		}

		b := msg.buf.b
		var err error
		switch {
		case len(msg.ends) != 1:
			err = violation("subscriber sent a message of %d frames", len(msg.ends))
		case len(b) > 0 && b[0] == 1:
			err = p.subscribe(sub, b[1:])
		case len(b) > 0 && b[0] == 0:
			sub.topics.cancel(b[1:])
		default:
			err = violation("subscriber sent data")
		}

		msg.free()
		if err != nil {
			return err
		}
	}
}

func (p *Pub) subscribe(sub *subscriber, topic []byte) error {
	if err := sub.topics.subscribe(topic); err != nil {
		return err
	}
	if p.cfg.OnSubscribe != nil {
		p.cfg.OnSubscribe(sub.member.peer, string(topic))
	}
	return nil
}

// public returns the error that OnDisconnect gets for the cause err. It is nil for a connection
// that was closed without a fault.
func public(err error) error {
	if errors.Is(err, errClosed) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Addr returns the address of the listener.
func (p *Pub) Addr() net.Addr { return p.hub.listener.Addr() }

// Publish sends one message of one or more frames to every subscriber with a topic that is a prefix
// of the first frame. It copies the frames. It returns when the queues of all shards hold the
// message: it may wait for processor time, never for a subscriber. It fails when ctx ends or the
// Pub is closed.
func (p *Pub) Publish(ctx context.Context, frames ...[]byte) error {
	ping := p.hub.pings.following()
	size := len(ping)
	for _, f := range frames {
		size += maxHeader + len(f)
	}
	wire := appendMessage(make([]byte, 0, size), frames...)
	m := &publication{wire: wire, pinged: append(wire, ping...)}
	if len(frames) > 0 {
		m.topic = append([]byte(nil), frames[0][:min(len(frames[0]), maxTopic)]...)
	}
	p.hub.count.published.Add(1)
	return p.handToShards(ctx, m, p.shards)
}

func (p *Pub) handToShards(ctx context.Context, m *publication, shards []*shard) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}

	// ctx bounds only the wait for the first shard: once one shard has the message, the other
	// shards must get it, too.
	done := ctx.Done()
	for _, s := range shards {
		select {
		case s.queue <- m:
			done = nil
		case <-done:
			return ctx.Err()
		}
	}

	return nil
}

// Flush waits until all messages published before the call have been written or queued for every
// subscriber.
func (p *Pub) Flush(ctx context.Context) error {
	var g sync.WaitGroup
	g.Add(len(p.shards))
	if err := p.handToShards(ctx, &publication{do: func(*shard) { g.Done() }}, p.shards); err != nil {
		return err
	}
	idle := make(chan struct{})
	go func() { g.Wait(); close(idle) }() // the goroutine ends: shards drain their queues even at Close
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Subscriber describes a connection of a Pub.
type Subscriber struct {
	Peer
	Topics []string // topics of the subscriber; "" is everything
	Queued int      // bytes that wait for the subscriber
}

// Subscribers lists the connections that are past their handshake.
func (p *Pub) Subscribers() []Subscriber {
	return slices.AppendSeq(make([]Subscriber, 0, p.hub.count.conns.Load()), p.Each)
}

// Each yields the connections that are past their handshake. The caller must not change their
// topics.
func (p *Pub) Each(yield func(Subscriber) bool) {
	for m := range p.hub.readyMembers {
		if !yield(p.subscriber(m)) {
			return
		}
	}
}

// Silent yields the subscribers that get PINGs with a TTL and whose last answered PING is older
// than since.
func (p *Pub) Silent(since time.Time, yield func(Peer) bool) {
	for m := range p.hub.readyMembers {
		peer := p.hub.pings.peerSeen(m.role.(*subscriber))
		if !peer.Answered.IsZero() && peer.Answered.Before(since) && !yield(peer) {
			return
		}
	}
}

func (p *Pub) subscriber(m *member) Subscriber {
	sub := m.role.(*subscriber)
	return Subscriber{Peer: p.hub.pings.peerSeen(sub), Topics: sub.topics.list(), Queued: m.outbox.queued()}
}

// SendTo sends a message to the connection with this Peer.ID only, after all messages published
// before the call. It ignores the subscriptions of that connection. It reports whether the
// connection existed and its queue had room.
func (p *Pub) SendTo(ctx context.Context, id uint64, frames ...[]byte) bool {
	b := appendMessage(nil, frames...)
	result := make(chan bool, 1)
	do := func(s *shard) { result <- s.sendOne(id, b) }
	if err := p.handToShards(ctx, &publication{do: do}, p.shardsOf(id)); err != nil {
		return false
	}
	return <-result // the shard always answers, also during Close
}

// shardsOf returns the shard of a connection, as a slice of one.
func (p *Pub) shardsOf(id uint64) []*shard {
	i := id % uint64(len(p.shards))
	return p.shards[i : i+1]
}

// Stats returns the counters.
func (p *Pub) Stats() Stats {
	s := p.hub.count.snapshot()
	p.hub.forEachMember(func(m *member) {
		if q := m.outbox.queued(); q > 0 {
			s.Slow++
			s.Queued += int64(q)
		}
	})
	return s
}

// Close stops accepting connections, waits for queued messages up to the linger time, ends all
// connections and waits for every goroutine. A second call does nothing. A hook must not call
// Close.
func (p *Pub) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		for _, s := range p.shards {
			close(s.queue)
		}
	}
	p.mu.Unlock()
	for _, s := range p.shards {
		<-s.drained
	}
	p.hub.close(func(m *member) <-chan struct{} { return m.outbox.pending() })
}
