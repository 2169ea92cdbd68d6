package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/cluster/node"
	"saltern/master/cluster/wire"
	"saltern/master/value"
)

// conn is one incoming connection of another master.
type conn struct {
	net.Conn
	inbox   *inbox
	address netip.Addr
	// id and pem are the name and the key that the other end has authenticated with in TLS. Whether
	// they belong to a member depends on the record, which may change at any moment.
	id, pem   string
	plain     bool
	class     int         // 0 for a connection that is not a member's, 1 for a member's; guarded by inbox.mu
	wasMember atomic.Bool // the other end was recognised as a member at least once

	out      net.Conn // writes to the other end, inside TLS if there is TLS
	writeMu  sync.Mutex
	arrivals [duties]chan arrived
	lateJobs map[uint64]Late // announced lateness, by the number of the late job; used by readFrames only
}

// serveConnection finds out whether the other end uses TLS, and reads its frames until the
// connection ends.
func (k *conn) serveConnection() {
	p := k.inbox.pool
	br := bufio.NewReader(k.Conn)
	_ = k.SetDeadline(time.Now().Add(5 * time.Second))
	first, err := br.Peek(1)
	if err != nil {
		return
	}

	// A TLS record begins with 0x16. A frame of the plain protocol that began with this byte would
	// be over 350 MB long.
	if first[0] == 0x16 {
		t := tls.Server(peeked{k.Conn, br}, p.tls)
		if t.HandshakeContext(p.ctx) != nil {
			p.count.refused.Add(1)
			return
		}

		if k.id, k.pem, err = endOf(t); err != nil {
			p.count.refused.Add(1)
			return
		}
		if k.refuseRemoved(t) {
			return
		}

		k.readFrames(bufio.NewReader(t), t)
		return
	}

	if !p.cfg.PlainPeers {
		p.count.refused.Add(1)
		p.log.Debug("a connection without TLS was refused", "addr", k.address)
		return
	}

	k.plain = true
	k.readFrames(br, k.Conn)
}

// refuseRemoved reports whether the other end is a master that was removed from the cluster. If so,
// it sends that master the message that it was removed.
func (k *conn) refuseRemoved(w net.Conn) bool {
	p := k.inbox.pool
	p.mu.Lock()
	buried := p.node.Phase() == node.Active && p.node.Tombstoned(k.pem)
	p.mu.Unlock()

	if !buried {
		return false
	}

	p.count.refused.Add(1)
	if _, data, err := packOwn(node.Gone{}); err == nil {
		if b, err := wire.AppendFrame(nil, wire.OwnPrefix+ownGone, data); err == nil {
			_, _ = w.Write(b)
		}
	}

	return true
}

// peeked is a connection of which some bytes were read ahead.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

// readFrames reads frames and handles their messages until the connection ends.
func (k *conn) readFrames(br *bufio.Reader, w net.Conn) {
	k.out = w
	var wg sync.WaitGroup
	defer wg.Wait()

	ctx, cancel := context.WithCancel(k.inbox.pool.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = k.Close() })()

	for d := range k.arrivals {
		k.arrivals[d] = make(chan arrived, windowCount)
		defer close(k.arrivals[d])
	}

	startHandlers := sync.OnceFunc(func() {
		for d := range duties {
			wg.Go(func() { k.handle(ctx, d) })
		}
	})

	r := wire.NewReader(br, wire.MaxStranger)
	r.SetCharge(k.charge)
	defer r.Release()

	opened := time.Now()
	for {
		member := k.prepareRead(r, opened)
		f, err := r.Next()
		if err != nil {
			return
		}

		kind, peer, rest := wire.Classify(f.Tag)
		ours := kind == wire.KindOwn && !k.plain
		var again bool
		switch {
		case ours && rest == ownItem:
			again = k.queueArrived(ctx, f.Data, member, startHandlers)
		case ours && member && rest == ownLate:
			k.noteLate(f.Data)
			again = true
		case ours && member && rest == ownThrough:
			if err := k.relayConnection(br, w, f.Data); err != nil {
				k.inbox.pool.count.bad.Add(1)
			}
		default:
			again = k.acceptMessage(kind, peer, rest, f, member)
		}

		if !again {
			return
		}
	}
}

// prepareRead reports whether the other end is a member, and sets the size bound and the deadline
// of the next frame accordingly.
func (k *conn) prepareRead(r *wire.Reader, opened time.Time) (member bool) {
	_, member = k.member()
	// A Saltern member sends a heartbeat every second; Salt's masters may be silent.
	end := time.Now().Add(5 * time.Minute)
	switch {
	case member:
		if k.class == 0 { // only this goroutine writes class
			k.inbox.belongs(k)
		}
		r.SetMax(wire.MaxFrame)
	case k.plain && k.mayBeSalt():
		r.SetMax(wire.MaxFrame)
	default: // not a member; the deadline also ends a frame that arrives byte by byte
		// The peer may pause this long between two frames.
		end = time.Now().Add(30 * time.Second)
		// A connection whose other end never becomes a member ends after this time.
		if last := opened.Add(2 * time.Minute); end.After(last) {
			end = last
		}
	}

	_ = k.SetDeadline(time.Time{})
	_ = k.SetReadDeadline(end)
	return member
}

// queueArrived queues a numbered message of a member for the handler goroutine of the message's
// duty. It calls startHandlers, which starts these goroutines unless they run already. It returns
// false when the connection must end.
func (k *conn) queueArrived(ctx context.Context, data []byte, member bool, startHandlers func()) bool {
	a, err := parseItem(data)
	if err != nil || !member {
		k.inbox.pool.count.bad.Add(1)
		return false
	}

	if a.duty == Jobs {
		a.late = k.lateJobs[a.seq]
		clear(k.lateJobs)
	}

	startHandlers()
	select {
	case k.arrivals[a.duty] <- a:
		return true
	case <-ctx.Done():
		return false
	}
}

// noteLate records that the next job on this connection is late, as the sender has announced.
func (k *conn) noteLate(data []byte) {
	seq, late, err := parseLate(data)
	if err != nil {
		k.inbox.pool.count.bad.Add(1)
		return
	}
	k.lateJobs = map[uint64]Late{seq: late}
}

// acceptMessage handles a message that carries no number. It returns false when the connection must
// end.
func (k *conn) acceptMessage(kind wire.Kind, peer, rest string, f wire.Frame, member bool) bool {
	err := k.message(kind, peer, rest, f)
	if err == nil {
		return true
	}

	k.inbox.pool.count.bad.Add(1)
	k.inbox.pool.log.Debug("a message of a master was refused", "addr", k.address, "tag", f.Tag, "error", err)
	return member || k.plain
}

// mayBeSalt reports whether a connection without TLS may come from a Salt master. It does not
// authenticate the sender: each message contains a proof.
func (k *conn) mayBeSalt() bool {
	return slices.ContainsFunc(k.inbox.pool.view.Load().rec.Members,
		func(m node.Member) bool { return k.inbox.fromSalt(m, k.address) })
}

// limited reports whether a message that costs RSA operations exceeds its rate limit. A message
// from a sender that is not a member counts against a limit for the sender's address and a limit
// for all such senders. Messages of members count against a separate limit.
func (k *conn) limited() bool {
	class := 0
	if _, member := k.member(); member || k.inbox.memberAddress(k.address) {
		class = 1
	}

	r := &k.inbox.rate
	now := time.Now()
	r.Lock()
	defer r.Unlock()

	if now.Sub(r.at) >= time.Second {
		r.at = now
		r.n = [2]int{}
		r.sources = map[netip.Addr]int{}
	}

	if class == 0 {
		r.sources[k.address]++
		if r.sources[k.address] > sourceRate {
			return true
		}
	}

	r.n[class]++
	return r.n[class] > strangerRate
}

var errRate = errors.New("too many messages of strangers")

// message verifies a message that carries no number and passes it to the node or to another part of
// the pool that handles its kind.
func (k *conn) message(kind wire.Kind, peer, rest string, f wire.Frame) error {
	p, s := k.inbox.pool, k.inbox.pool.cfg.Suite
	from := k.source()
	switch kind {
	case wire.KindDiscover, wire.KindDiscoverReply, wire.KindJoin, wire.KindJoinReply, wire.KindAnnounce:
		if k.limited() {
			p.count.strangers.Add(1)
			return errRate
		}
		k.inbox.rsa <- struct{}{}
		defer func() { <-k.inbox.rsa }()
	case wire.KindEvent:
		if !k.plain {
			return errOwn
		}
		return k.inbox.handleSaltEvent(k.address, peer, rest, f.Data)
	}

	switch kind {
	case wire.KindDiscover:
		m, err := s.OpenDiscover(f.Data)
		return p.verified(from, m, err)
	case wire.KindDiscoverReply:
		m, err := s.OpenDiscoverReply(f.Data)
		return p.verified(from, m, err)
	case wire.KindJoin:
		m, err := s.OpenJoin(f.Data, p.masterKey())
		return p.verified(from, m, err)
	case wire.KindJoinReply:
		return k.joinReply(from, f.Data)
	case wire.KindJoinNotify:
		m, err := wire.OpenJoinNotify(f.Data, p.view.Load().keys...)
		if err == nil && from.ID == "" {
			from.ID = m.PeerID // the message is sealed with a key that only members have
		}
		return p.verified(from, m, err)
	case wire.KindAnnounce:
		return k.announce(from, peer, f.Data)
	case wire.KindOwn:
		return k.handleOwn(from, rest, f.Data)
	case wire.KindRaft:
		if p.consensus == nil {
			return nil // this master takes no part in the consensus
		}
		return p.consensus.queueMessage(k, rest, f.Data)
	case wire.KindState:
		return nil // Saltern's masters do not use this message
	}

	return errOwn
}

// joinReply handles the cluster's answer to this master's request to join.
func (k *conn) joinReply(from node.Source, data []byte) error {
	p := k.inbox.pool
	id, err := wire.Peek(data)
	if err != nil {
		return err
	}
	p.mu.Lock()
	pub, tok := p.node.KeyOf(id), p.node.JoinToken(id)
	p.mu.Unlock()
	if tok == "" {
		return wire.ErrProof
	}
	m, err := p.cfg.Suite.OpenJoinReply(data, p.masterKey(), pub, tok)
	return p.verified(from, m, err)
}

// announce handles a Salt master's message that carries its session key, or that asks to become
// known as a peer.
func (k *conn) announce(from node.Source, peer string, data []byte) error {
	p := k.inbox.pool
	m, member := p.view.Load().rec.Member(peer)
	if k.plain && (!member || m.Own) {
		m, member = p.configured(peer, m), false
	}

	if m.ID == "" || m.Own {
		return wire.ErrProof
	}

	a, err := wire.ParseAnnounce(peer, data)
	if err != nil {
		return err
	}

	key, ok, err := p.cfg.Suite.Open(a, p.cfg.ID, p.masterKey(), m.Pub)
	if err != nil || !ok {
		return err
	}
	if !member {
		return p.verified(node.Source{ID: p.cfg.ID},
			wire.JoinNotify{PeerID: p.cfg.ID, JoinPeerID: peer, Pub: m.Pub}, nil)
	}

	k.inbox.rememberAddress(peer, k.address)
	from.ID = peer
	return p.verified(from, node.SessionKey{Key: key}, nil)
}

// handleOwn handles the messages that only Saltern masters send each other.
func (k *conn) handleOwn(from node.Source, rest string, data []byte) error {
	p := k.inbox.pool
	if k.plain {
		return errOwn
	}
	if rest == ownTaken {
		if from.ID == "" {
			return wire.ErrProof
		}
		return p.heardTaken(data)
	}

	if rest == ownData {
		if from.ID == "" {
			return wire.ErrProof
		}
		return p.heardData(from.ID, data)
	}

	if rest == ownSubs || rest == ownCut || rest == ownStarted {
		if from.ID == "" {
			return wire.ErrProof
		}

		if err := p.receiveNews(from.ID, k.address, rest, data); err != nil || rest != ownStarted {
			return err
		}

		p.cameStarts(from.ID, k)
		return k.acknowledgeStarts(data)
	}

	m, err := parseOwn(rest, data)
	return p.verified(from, m, err)
}

// acknowledgeStarts confirms to the sender a message about new minion processes.
func (k *conn) acknowledgeStarts(data []byte) error {
	_, number, err := parseStarts(data)
	if err != nil {
		return err
	}
	b, err := wire.AppendFrame(nil, wire.OwnPrefix+ownHeard, value.NewMap("number", number))
	if err != nil {
		return err
	}
	return k.answer(b)
}

func (p *Pool) verified(from node.Source, msg any, err error) error {
	if err == nil {
		p.stepNode(node.Message{From: from, Msg: msg})
	}
	return err
}
