package zmtp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Listen holds the settings that Router and Pub have in common.
type Listen struct {
	Limits    Limits
	Heartbeat Heartbeat
	// ProxyFrom lists the addresses whose connections may begin with a PROXY v2 header. A
	// connection from any other address ends if it sends such a header. The header is optional,
	// since the proxy's health checks and local tools connect from these addresses without a
	// header.
	ProxyFrom []netip.Prefix
	// ProxyMember reports whether an address outside of ProxyFrom may send a PROXY header. It may
	// be nil: only addresses in ProxyFrom may. The hub calls ProxyMember once per connection; it
	// must not block.
	ProxyMember func(netip.Addr) bool
	// ProxyUnix means that connections to a Unix socket may begin with a PROXY header.
	ProxyUnix bool
	// Sources holds the addresses from which requests were authenticated recently. Sources may be
	// nil: the listener creates a private table.
	Sources *Sources
	// Linger is how long Close waits until replies and queued messages are sent. Default 1 s, as in
	// Salt; a negative value means not to wait.
	Linger time.Duration
	// Log receives expected network events at debug level, and warnings about faulty peers at a
	// bounded rate. Log may be nil: the listener logs nothing.
	Log *slog.Logger
}

// slots is the number of groups of connections. Each heartbeat tick serves one group, so that the
// load is even. With at most fewConns connections, one tick per interval serves all groups, since a
// wake-up costs more than serving them.
const (
	slots    = 16
	fewConns = 64
)

// hub accepts connections and owns them.
type hub struct {
	cfg        Listen
	socketType string // socket type of this end
	out        outLimits
	pings      *pings
	pools      *pools
	memory     pool // bytes of messages of proven peers
	// strangers counts the bytes of messages of unauthenticated peers, strange counts the
	// connections of such peers.
	strangers, strange pool
	count              counters
	warnings           throttle
	listener           net.Listener
	// serve runs a connection after its handshake, in the connection's goroutine, and returns why
	// the connection ended. serve also sets member.role and member.ready.
	serve   func(*member) error
	ctx     context.Context // context of the handlers; close cancels it at its very end
	cancel  context.CancelFunc
	closing chan struct{}
	once    sync.Once

	loops  sync.WaitGroup // the goroutines of accept and heartbeat
	conns  sync.WaitGroup // the goroutines of connections, and their flushers
	lastID atomic.Uint64
	slots  [slots]slot

	mu      sync.Mutex
	sources map[netip.Addr]int // number of connections by address; used only with MaxPerSource
}

// slot is a group of connections.
type slot struct {
	mu      sync.Mutex
	members []*member
}

// member is a connection of a hub.
type member struct {
	link
	slot  *slot
	index int // index in slot.members; guarded by slot.mu
	// ready means that the handshake is over. The connection's goroutine sets role before ready.
	ready atomic.Bool
	role  any // the *asker or *subscriber of the connection
	// account is set when the source of the connection is known, before ready.
	account Account
	placed  bool // the connection occupies a slot for unauthenticated peers
	born    time.Time
}

func newHub(ctx context.Context, ln net.Listener, own string, cfg Listen, maxMessage int, out outLimits) *hub {
	cfg.Limits = cfg.Limits.withDefaults(maxMessage)
	cfg.Heartbeat = cfg.Heartbeat.withDefaults()
	setDefault(&cfg.Linger, time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	h := &hub{
		cfg:        cfg,
		socketType: own,
		out:        out,
		pings:      newPings(cfg.Heartbeat.TTL),
		pools:      newPools(),
		listener:   ln,
		closing:    make(chan struct{}),
		sources:    map[netip.Addr]int{},
	}

	h.cfg.Sources = cmp.Or(h.cfg.Sources, NewSources(time.Now))
	h.memory.max, h.memory.times = cfg.Limits.MaxInflight, 8
	h.strangers.max, h.strangers.times = cfg.Limits.MaxStrange, 2
	h.strange.max, h.strange.times = int64(cfg.Limits.MaxConns)*3/4, 1

	// The context of the handlers outlives ctx by the linger time: only close cancels it.
	h.ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return h
}

// startLoops starts the goroutines that accept connections and send heartbeats. When ctx ends, it
// calls closed.
func (h *hub) startLoops(ctx context.Context, closed func()) {
	h.loops.Go(h.accept)
	if h.cfg.Heartbeat.Interval > 0 {
		h.loops.Go(h.heartbeat)
	}
	stop := context.AfterFunc(ctx, closed)
	h.loops.Go(func() { <-h.closing; stop() })
}

func (h *hub) accept() {
	pause := 5 * time.Millisecond
	for {
		conn, err := h.listener.Accept()
		if err == nil {
			pause = 5 * time.Millisecond
			h.admitConnection(conn)
			continue
		}

		select {
		case <-h.closing:
			return
		default:
		}

		if errors.Is(err, net.ErrClosed) {
			return
		}

		// The process has probably run out of file descriptors: wait before the next attempt.
		h.count.acceptFails.Add(1)
		h.warnings.warn(h.cfg.Log, "cannot accept", "error", err)
		select {
		case <-h.closing:
			return
		case <-time.After(pause):
		}

		pause = min(2*pause, time.Second)
	}
}

func (h *hub) admitConnection(conn net.Conn) {
	open := h.count.conns.Add(1)
	// Increase accepted after conns, so that snapshot never counts more accepted connections than
	// open and ended ones together.
	h.count.accepted.Add(1)
	if open > int64(h.cfg.Limits.MaxConns) {
		h.count.conns.Add(-1)
		h.count.refused.Add(1)
		_ = conn.Close()
		return
	}

	if tc, ok := conn.(*net.TCPConn); ok {
		// The same values as salt's transport/zeromq.py on port 4506: idle 60, interval 15, count
		// 3.
		_ = tc.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true,
			Idle: 60 * time.Second, Interval: 15 * time.Second, Count: 3})
	}

	id := h.lastID.Add(1)
	m := &member{slot: &h.slots[id%slots], born: time.Now()}
	m.account.hub = h
	m.init(conn, &h.cfg.Limits, h.pools, m.memory, h.out, h.conns.Go)
	m.peer.ID = id
	m.peer.Remote = remote(conn)
	h.addMember(m)
	h.conns.Go(func() { h.runConnection(m) })
}

// remote returns the address of a TCP peer, or the zero value for other peers.
func remote(conn net.Conn) netip.AddrPort {
	a, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

func (h *hub) addMember(m *member) {
	m.slot.mu.Lock()
	m.index = len(m.slot.members)
	m.slot.members = append(m.slot.members, m)
	m.slot.mu.Unlock()
}

func (h *hub) remove(m *member) {
	s := m.slot
	s.mu.Lock()
	last := len(s.members) - 1
	s.members[m.index] = s.members[last]
	s.members[m.index].index = m.index
	s.members[last] = nil
	s.members = s.members[:last]
	s.mu.Unlock()
}

// runConnection runs the handshake and serve of a connection, and cleans up. It is the body of the
// connection's goroutine.
func (h *hub) runConnection(m *member) {
	defer h.count.conns.Add(-1)
	counted, err := h.shakeHands(m)
	defer m.releasePlace()

	if err == nil {
		err = h.serve(m)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errLate
	}

	err = m.closeCause(err)
	m.fail(err)
	m.reader.close()
	h.remove(m)

	if counted {
		h.forget(m.peer.Remote.Addr())
	}

	h.report(m, err)
}

// shakeHands reads the PROXY header, claims a connection slot for the peer, and exchanges greeting
// and READY. counted reports, with and without an error, whether the connection counts against
// MaxPerSource.
func (h *hub) shakeHands(m *member) (counted bool, err error) {
	h.count.handshakes.Add(1)
	defer h.count.handshakes.Add(-1)
	if err := m.conn.SetReadDeadline(time.Now().Add(h.cfg.Limits.Handshake)); err != nil {
		return false, err
	}

	trusted := h.trusted(m)
	proxied := false
	if trusted {
		told, err := readProxy(m.reader)
		if err != nil {
			return false, err
		}

		if proxied = told.src.IsValid(); proxied {
			m.peer.Via = m.peer.Remote.Addr()
			m.peer.Remote = told.src
			m.peer.Missing = told.missing
			m.peer.Began = told.began
		}
	}

	if !h.claimPlace(m, proxied) {
		h.count.refused.Add(1)
		return false, errFull
	}

	if h.cfg.Limits.MaxPerSource > 0 && (proxied || !trusted) {
		if !h.remember(m.peer.Remote.Addr()) {
			h.count.refused.Add(1)
			return false, errTooMany
		}
		counted = true
	}

	if err := m.handshake(h.socketType, ""); err != nil {
		return counted, err
	}

	return counted, m.conn.SetReadDeadline(time.Time{})
}

// claimPlace determines the source of a connection and, for an unauthenticated peer, reserves a
// connection slot. It returns false when the slots for such peers are used up.
func (h *hub) claimPlace(m *member, proxied bool) bool {
	a := m.peer.Remote.Addr()
	m.account.source = source(a)
	if !proxied && (!a.IsValid() || a.IsLoopback() || h.trusted(m)) {
		m.account.proven.Store(true) // the peer is a tool on this host, or a load balancer's health check
	}
	if m.account.trusted() {
		return true
	}
	m.placed = h.strange.reserve(m.account.source, 1)
	return m.placed
}

// memory returns the pool and the source against which messages of the connection count.
func (m *member) memory() (*pool, netip.Addr) {
	p, _ := m.account.memoryPool()
	return p, m.account.source
}

// releasePlace releases the connection slot that claimPlace reserved.
func (m *member) releasePlace() {
	if m.placed {
		m.account.hub.strange.release(m.account.source, 1)
	}
}

var (
	errFull    = errors.New("zmtp: all places for strangers are taken, or too many by this address")
	errTooMany = errors.New("zmtp: too many connections from this address")
	errLate    = errors.New("zmtp: handshake not finished in time")
	errSlow    = violation("message not finished in time")
	// errUnproven ends a connection whose peer has not authenticated in time. The connection is
	// closed without a reset, since a minion that waits for its key simply reconnects.
	errUnproven = errors.New("zmtp: nothing was proven in time")
)

func (h *hub) trusted(m *member) bool {
	if !m.peer.Remote.IsValid() {
		return h.cfg.ProxyUnix && m.conn.RemoteAddr().Network() == "unix"
	}
	for _, p := range h.cfg.ProxyFrom {
		if p.Contains(m.peer.Remote.Addr()) {
			return true
		}
	}
	return h.cfg.ProxyMember != nil && h.cfg.ProxyMember(m.peer.Remote.Addr())
}

func (h *hub) remember(a netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sources[a] >= h.cfg.Limits.MaxPerSource {
		return false
	}
	h.sources[a]++
	return true
}

func (h *hub) forget(a netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sources[a]--
	if h.sources[a] <= 0 {
		delete(h.sources, a)
	}
}

// report counts the end of a connection, and logs it.
func (h *hub) report(m *member, err error) {
	args := []any{"socket", h.socketType, "peer", m.peer.Remote, "error", err}
	switch {
	case errors.Is(err, errProtocol):
		h.count.badPeers.Add(1)
		h.warnings.warn(h.cfg.Log, "connection closed: peer misbehaves", args...)
	case errors.Is(err, errLate):
		h.count.lateShakes.Add(1)
		h.cfg.Log.Debug("connection closed", args...)
	case errors.Is(err, errSilent):
		h.count.silent.Add(1)
		h.cfg.Log.Debug("connection closed: peer is silent", args...)
	case errors.Is(err, errStalled):
		h.count.stalled.Add(1)
		h.cfg.Log.Info("connection closed: peer does not read", args...)
	case errors.Is(err, errNoRoom):
		h.count.noRoom.Add(1)
		h.warnings.warn(h.cfg.Log, "connection closed: memory for messages is used up", args...)
	case errors.Is(err, errUnproven):
		h.count.unproven.Add(1)
		h.cfg.Log.Debug("connection closed: it has proved nothing", args...)
	case errors.Is(err, errTooMany), errors.Is(err, errFull):
		h.warnings.warn(h.cfg.Log, "connection refused", args...)
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, errClosed):
		h.cfg.Log.Debug("connection closed", "socket", h.socketType, "peer", m.peer.Remote)
	default:
		h.cfg.Log.Debug("connection closed", args...)
	}
}

// heartbeat calls tendMember for every connection once per interval.
func (h *hub) heartbeat() {
	step := h.cfg.Heartbeat.Interval / slots
	t := time.NewTimer(step)
	defer t.Stop()

	var batch []*member
	rested := false // the loop has slept for a whole interval
	for i := 0; ; {
		select {
		case <-h.closing:
			return
		case <-t.C:
		}

		few := h.count.conns.Load() <= fewConns
		visits := 1
		if few || rested {
			visits = slots
		}

		rested = few
		if few {
			t.Reset(h.cfg.Heartbeat.Interval)
		} else {
			t.Reset(step)
		}

		now := time.Now()
		for ping := h.pings.pingAt(now); visits > 0; visits-- {
			batch = h.slots[i].appendMembers(batch[:0])
			for _, m := range batch {
				h.tendMember(m, now, ping)
			}
			clear(batch)
			i = (i + 1) % slots
		}
	}
}

// tendMember sends a PING on a connection, or closes the connection if the peer is silent or has
// not authenticated in time.
func (h *hub) tendMember(m *member, now time.Time, ping []byte) {
	switch {
	case !m.ready.Load():
	case h.overdue(m, now):
		m.fail(errUnproven)
	default:
		m.heartbeat(now, h.cfg.Heartbeat.Timeout, ping)
	}
}

// overdue reports whether the connection of an unauthenticated peer has been open for longer than
// ProveIn. It returns false while a request or a reply of the connection is under way.
func (h *hub) overdue(m *member, now time.Time) bool {
	in := h.cfg.Limits.ProveIn
	if in <= 0 || now.Sub(m.born) < in {
		return false
	}
	c, ok := m.role.(*asker)
	return ok && c.running() == nil && m.outbox.pending() == nil && !m.account.trusted()
}

func (s *slot) appendMembers(dst []*member) []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(dst, s.members...)
}

// forEachMember calls f for every connection that is past its handshake.
func (h *hub) forEachMember(f func(*member)) {
	for m := range h.readyMembers {
		f(m)
	}
}

// readyMembers yields every connection that is past its handshake.
func (h *hub) readyMembers(yield func(*member) bool) {
	var batch []*member
	for i := range h.slots {
		batch = h.slots[i].appendMembers(batch[:0])
		for _, m := range batch {
			if m.ready.Load() && !yield(m) {
				return
			}
		}
	}
}

// close stops accepting connections. It waits, up to the linger time, until for each connection the
// channel that doneOf returns is closed. Then it ends every connection and waits for all
// goroutines. A second call does nothing.
func (h *hub) close(doneOf func(*member) <-chan struct{}) {
	h.once.Do(func() {
		close(h.closing)
		_ = h.listener.Close()
		h.linger(doneOf)
		h.cancel()
	})

	h.loops.Wait()

	// A connection that was accepted at the last moment is in a slot by now.
	for i := range h.slots {
		for _, m := range h.slots[i].appendMembers(nil) {
			m.fail(nil)
		}
	}

	h.conns.Wait()
}

func (h *hub) linger(settled func(*member) <-chan struct{}) {
	if h.cfg.Linger < 0 {
		return
	}

	t := time.NewTimer(h.cfg.Linger)
	defer t.Stop()
	over := false
	h.forEachMember(func(m *member) {
		for !over {
			wait := settled(m)
			if wait == nil {
				return
			}

			select {
			case <-wait:
			case <-m.ended:
				return
			case <-t.C:
				over = true
			}
		}
	})
}
