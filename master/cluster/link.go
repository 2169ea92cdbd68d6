package cluster

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"saltern/master/cluster/node"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
	"saltern/master/value"
)

// Times of a link.
const (
	dialWait      = 5 * time.Second
	handshakeWait = 5 * time.Second
	writeWait     = 15 * time.Second
	redialMin     = 100 * time.Millisecond
	redialMax     = 3 * time.Second
	strayFor      = 20 * time.Second // an idle link to a master that is not a member ends after this time
	maxControl    = 64
)

// link is the outgoing connection to one master. It dials again after each break and sends the
// queued messages. Saltern's masters acknowledge messages on the same connection; Salt's masters
// send nothing on that connection.
type link struct {
	pool     *Pool
	id       string
	pub      string // key (PEM) that the other end must have; "" while it is unknown
	plain    bool   // speaks Salt's protocol, without TLS
	stray    bool   // leads to a master that is not a member; the link ends when idle
	tryPlain bool   // it is unknown whether the other master is Saltern's or Salt's: try TLS first, then plain

	queues [duties]queue
	wake   chan struct{}
	ctx    context.Context
	stop   context.CancelFunc

	mu          sync.Mutex
	pending     []any // control messages that have not been sent
	taken       [][16]byte
	starts      starts
	data        dataQueue
	lostControl uint64
	leaving     bool

	lostJobs lostJobs // used by Pool.findLost; guarded by the pool's lock

	up        atomic.Bool
	refused   atomic.Bool            // the last dial was refused: no process listens there
	relayedBy atomic.Pointer[string] // name of the relaying master; see relayPeer
	ended     atomic.Bool
	dials     atomic.Uint64
	lastErr   atomic.Pointer[string]
}

func newLink(p *Pool, id, pub string, plain bool) *link {
	l := &link{
		pool:   p,
		id:     id,
		pub:    pub,
		plain:  plain,
		wake:   make(chan struct{}, 1),
		starts: starts{change: make(chan struct{})},
	}
	for d := range l.queues {
		l.queues[d].bounds = dutyBounds[d]
	}
	l.ctx, l.stop = context.WithCancel(p.ctx)
	return l
}

func (l *link) close()         { l.stop() }
func (l *link) hasEnded() bool { return l.ended.Load() }

// farewell closes the link once the waiting control messages are written.
func (l *link) farewell() {
	l.mu.Lock()
	l.leaving = true
	l.mu.Unlock()
	l.wakeWriter()
}

func (l *link) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// control queues a control message of package node.
func (l *link) control(msg any) {
	l.mu.Lock()
	if l.mergeCuts(msg) {
		l.mu.Unlock()
		l.wakeWriter()
		return
	}

	if len(l.pending) >= maxControl {
		l.lostControl++
	} else {
		for i, m := range l.pending {
			if replaces(msg, m) {
				l.pending = append(l.pending[:i], l.pending[i+1:]...)
				break
			}
		}
		l.pending = append(l.pending, msg)
	}
	l.mu.Unlock()

	l.wakeWriter()
}

// mergeCuts appends the cuts of msg to a cut message that waits to be sent, if there is one, and
// reports whether it did. The caller holds mu.
func (l *link) mergeCuts(msg any) bool {
	m, ok := msg.(cutMsg)
	if !ok {
		return false
	}
	for i, old := range l.pending {
		if o, ok := old.(cutMsg); ok && len(o.cuts)+len(m.cuts) <= maxSubs {
			l.pending[i] = cutMsg{append(o.cuts[:len(o.cuts):len(o.cuts)], m.cuts...)}
			return true
		}
	}
	return false
}

// replaces reports whether msg makes an older waiting message obsolete.
func replaces(msg, old any) bool {
	switch msg.(type) {
	case node.Beat:
		_, ok := old.(node.Beat)
		return ok
	case subsMsg:
		_, ok := old.(subsMsg)
		return ok
	}
	return false
}

func (l *link) takeControl() (msgs []any, leaving bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	msgs, l.pending = l.pending, nil
	return msgs, l.leaving
}

// queueItem queues a message of a duty and reports whether there was room.
func (l *link) queueItem(d Duty, i *item) bool {
	ok := l.queues[d].put(i)
	l.wakeWriter()
	return ok
}

// keepConnected dials, and dials again after each break, until the link is closed.
func (l *link) keepConnected() {
	defer l.ended.Store(true)
	defer l.stop()
	wait := redialMin
	for l.ctx.Err() == nil {
		began := time.Now()
		err := l.connectOnce()
		if l.ctx.Err() != nil || err == nil {
			return
		}
		if errors.Is(err, errDirect) {
			wait = redialMin
			continue
		}

		text := err.Error()
		if old := l.lastErr.Swap(&text); old == nil || *old != text {
			l.pool.log.Info("no connection to a master", "peer", l.id, "error", err)
		}

		if l.stray && time.Since(began) > strayFor {
			return
		}

		if time.Since(began) > 2*redialMax {
			wait = redialMin
		}

		select {
		case <-time.After(wait):
		case <-l.ctx.Done():
		}

		wait = min(2*wait, redialMax)
	}
}

var errPin = errors.New("the other end has another key than the member")

// dialPeer connects to the peer directly or, if that fails, through a third master, and
// authenticates the other end. plain means that the connection has no TLS. relay is the name of the
// master that relays the connection, or is "".
func (l *link) dialPeer() (c net.Conn, plain bool, relay string, err error) {
	between := l.pool.between(l)
	l.dials.Add(1)
	defer func() { l.refused.Store(errors.Is(err, syscall.ECONNREFUSED)) }()

	limit := dialWait
	if len(between) > 0 {
		limit = directWait
	}

	c, plain, err = l.direct(limit)
	if err == nil || errors.Is(err, errPin) || l.ctx.Err() != nil {
		return c, plain, "", err
	}

	for _, o := range between {
		if c, terr := l.through(o); terr == nil {
			text := err.Error()
			l.lastErr.Store(&text)
			return c, false, o.id, nil
		}
	}

	return nil, false, "", err
}

// direct connects to the link's master itself, not through a relaying master. plain means that the
// connection has no TLS.
func (l *link) direct(limit time.Duration) (c net.Conn, plain bool, err error) {
	raw, err := l.openDirect(limit)
	if err != nil || l.plain {
		return raw, true, err
	}

	limit = handshakeWait
	if l.tryPlain {
		limit /= 4
	}

	c, err = l.secure(raw, limit)
	if err != nil && l.tryPlain && !errors.Is(err, errPin) && l.ctx.Err() == nil {
		raw, err := l.openDirect(dialWait)
		return raw, true, err
	}

	return c, false, err
}

// connectOnce dials and then writes until the connection breaks.
func (l *link) connectOnce() error {
	c, plain, by, err := l.dialPeer()
	if err != nil {
		return err
	}

	l.relayedBy.Store(&by)
	ctx, cancel := context.WithCancelCause(l.ctx)
	defer cancel(nil)

	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.Close()

	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	wg.Go(func() { // reads acknowledgements, and notices when the connection ends
		l.listen(c, plain)
		cancel(errors.New("the other end has closed the connection"))
	})

	if by != "" {
		wg.Go(func() { l.straight(ctx, cancel) })
	}

	for d := range l.queues {
		l.queues[d].markUnsent()
	}

	l.dropData()
	if by == "" {
		l.lastErr.Store(nil)
	}

	if !l.stray {
		l.pool.log.Info("connected to a master", "peer", l.id, "tls", !plain, "through", by)
		l.up.Store(true)
		l.pool.stepNode(node.Linked{Peer: l.id})
		if s := l.pool.subs.Load(); s != nil && !plain {
			l.control(*s)
		}

		if !plain {
			l.allTaken()
			l.beginStarts(true)
			l.connected()
		}

		defer func() {
			l.up.Store(false)
			l.beginStarts(false)
			l.pool.stepNode(node.Unlinked{Peer: l.id})
		}()
	}

	return l.writeMessages(ctx, c, plain)
}

// listen reads the messages of the other end on this connection: acknowledgements, and the notice
// that this master was removed from the cluster.
func (l *link) listen(c net.Conn, plain bool) {
	r := wire.NewReader(bufio.NewReader(c), wire.MaxStranger)
	for {
		f, err := r.Next()
		if err != nil {
			return
		}

		kind, _, rest := wire.Classify(f.Tag)
		if plain || kind != wire.KindOwn {
			continue
		}
		if rest == ownGone && !l.stray { // the TLS key has proven that the other end is a member
			l.pool.stepNode(node.Message{From: node.Source{ID: l.id}, Msg: node.Gone{}})
			continue
		}
		if rest == ownHeard {
			if m, err := unpackOwnMap(f.Data); err == nil {
				l.heardStarts(uintOf(m, "number"))
			}
			continue
		}

		if rest != ownAck {
			continue
		}

		d, seq, err := parseAck(f.Data)
		if err != nil {
			return
		}

		for _, i := range l.queues[d].acknowledge(seq) {
			l.sentLate(i)
		}

		l.wakeWriter()
	}
}

// writeMessages sends the queued messages until the connection breaks: control messages first, then
// one duty after the other.
func (l *link) writeMessages(ctx context.Context, c net.Conn, plain bool) error {
	idle := time.NewTimer(strayFor)
	defer idle.Stop()

	connected := l.pool.cfg.Now()
	for _, hold := range []time.Duration{returnsFirst, lostFor} {
		held := time.AfterFunc(hold, l.wakeWriter)
		defer held.Stop()
	}

	var buf []byte
	for {
		var busy, dataBusy, itemsBusy, leaving bool
		buf, busy, leaving = l.packPending(buf, plain)
		if !l.stray && !plain {
			buf, dataBusy = l.packWaitingData(buf)
		}

		if !l.stray {
			buf, itemsBusy = l.packDuties(buf, connected, plain)
		}

		if err := l.writeBuffer(c, buf); err != nil {
			return err
		}

		if cap(buf) > 1<<20 {
			buf = nil
		}

		buf = buf[:0]

		if leaving {
			return nil
		}
		if busy || dataBusy || itemsBusy {
			continue
		}

		select {
		case <-l.wake:
			idle.Reset(strayFor)
		case <-idle.C:
			if l.stray {
				return nil
			}
			idle.Reset(strayFor)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// writeBuffer writes packed messages to the connection.
func (l *link) writeBuffer(c net.Conn, buf []byte) error {
	if len(buf) == 0 {
		return nil
	}

	_ = c.SetWriteDeadline(time.Now().Add(writeWait))
	_, err := c.Write(buf)
	l.wroteData()
	return err
}

// packPending appends the waiting control messages to buf. busy reports whether there were any.
// leaving reports whether the link must close after sending them.
func (l *link) packPending(buf []byte, plain bool) (packed []byte, busy, leaving bool) {
	msgs, leaving := l.takeControl()
	if t := l.takeTaken(); len(t) > 0 && !plain {
		msgs = append(msgs, t)
	}

	if !l.stray && !plain {
		msgs = append(msgs, l.takeStarts(l.pool.cfg.Now())...)
	}

	for _, m := range msgs {
		next, err := l.packControl(buf, m, plain)
		if err != nil {
			l.pool.log.Warn("a message to a master cannot be packed", "peer", l.id, "error", err)
			continue
		}
		buf = next
	}

	return buf, len(msgs) > 0, leaving
}

// packWaitingData appends waiting data of minions to buf and reports whether there was any.
func (l *link) packWaitingData(buf []byte) (packed []byte, busy bool) {
	packed, err := l.packData(buf)
	if err != nil {
		l.pool.log.Warn("data of minions cannot be packed for a master", "peer", l.id, "error", err)
	}
	return packed, len(packed) > len(buf)
}

// packDuties appends messages of each duty to buf and reports whether there were any. connected is
// when the connection began; late jobs may have to wait for some time after that.
func (l *link) packDuties(buf []byte, connected time.Time, plain bool) (packed []byte, busy bool) {
	for d := range duties {
		if d == Jobs && !plain && l.holdJobs(l.pool.cfg.Now(), connected) {
			continue
		}

		// Send a bounded number of messages of each duty, so that no duty delays another.
		for range 32 {
			i := l.queues[d].nextToSend(l.pool.cfg.Now(), !plain)
			if i == nil || len(buf) > 256<<10 {
				break
			}

			busy = true
			var err error
			if buf, err = l.packItem(buf, d, i, plain); err != nil {
				l.pool.log.Warn("an event cannot be packed for a master", "peer", l.id, "tag", i.tag, "error", err)
			}
		}
	}

	return buf, busy
}

func (l *link) packItem(buf []byte, d Duty, i *item, plain bool) ([]byte, error) {
	if plain {
		sealed := i.sealed()
		if sealed == nil {
			return buf, errOwn
		}
		return wire.AppendPacked(buf, wire.EventTag(l.pool.cfg.ID, i.tag), sealed)
	}

	packed, err := packItem(l.pool.inc, d, i)
	if err != nil {
		return buf, err
	}

	if buf, err = l.announceLate(buf, i, l.pool.cfg.Now()); err != nil {
		return buf, err
	}

	return wire.AppendPacked(buf, wire.OwnPrefix+ownItem, packed)
}

// packControl appends a control message to buf. It runs on the link's own goroutine, since it
// performs costly RSA operations.
func (l *link) packControl(buf []byte, msg any, plain bool) ([]byte, error) {
	p, s := l.pool, l.pool.cfg.Suite
	var tag string
	var data *value.Map
	var err error
	switch m := msg.(type) {
	case wire.Discover:
		tag = wire.TagDiscover
		data, err = m.Seal(s, p.masterKey())
	case wire.DiscoverReply:
		tag = wire.TagDiscoverReply
		data, err = m.Seal(s, p.identity.Key)
	case wire.Join:
		tag = wire.TagJoin
		data, err = m.Seal(s, p.masterKey(), l.pub)
	case wire.JoinReply:
		tag = wire.TagJoinReply
		if m.ClusterPEM, err = crypt.PrivatePEM(p.identity.Key, ""); err == nil {
			m.ClusterKey = p.ClusterKey()
			data, err = m.Seal(s, p.masterKey(), l.pub)
		}
	case wire.JoinNotify:
		sealed, err := m.Seal(p.ClusterKey())
		if err != nil {
			return buf, err
		}
		return wire.AppendFrame(buf, wire.TagJoinNotify, sealed)
	case node.SessionKey:
		sig, err := p.announceSig()
		if err != nil {
			return buf, err
		}

		e, err := s.NewAnnounceEntry(wire.Peer{ID: l.id, Pub: l.pub}, p.session, sig)
		if err != nil {
			return buf, err
		}

		tag = wire.AnnounceTag(p.cfg.ID)
		data = wire.Announce{PeerID: p.cfg.ID, Entries: []wire.AnnounceEntry{e}}.Pack()
	case cutMsg:
		if plain {
			return buf, nil
		}
		tag, data = wire.OwnPrefix+ownCut, m.packCuts(p.cfg.Now())
	case wire.Raft:
		tag, data = wire.RaftTag(m.Kind), m.Pack()
	default:
		if plain {
			return buf, nil // Salt's masters do not have this message
		}
		tag, data, err = packOwn(msg)
	}

	if err != nil {
		return buf, err
	}

	return wire.AppendFrame(buf, tag, data)
}
