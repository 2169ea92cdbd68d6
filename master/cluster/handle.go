package cluster

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"saltern/master/cluster/wire"
	"saltern/master/event"
)

// maxBatch is the greatest number of returns that one call of handleBatch stores. The records of a
// batch share one sync of the disk.
const maxBatch = 128

// handle handles the messages of duty d that arrive on a connection, acknowledges them, and returns
// when the connection's reader closes the channel.
func (k *conn) handle(ctx context.Context, d Duty) {
	for a := range k.arrivals[d] {
		batch := []arrived{a}
		for d == Returns && len(batch) < maxBatch && len(k.arrivals[d]) > 0 {
			if more, ok := <-k.arrivals[d]; ok {
				batch = append(batch, more)
			}
		}

		m, ok := k.member()
		if ctx.Err() != nil || !ok {
			continue
		}

		n := k.inbox.handleBatch(ctx, m.ID, d, batch)
		if n > 0 && !k.acknowledge(d, batch[n-1].seq) || n < len(batch) {
			_ = k.Close() // the peer sends the rest again on the next connection
		}
	}
}

func (k *conn) acknowledge(d Duty, seq uint64) bool {
	packed, err := packAck(d, seq)
	if err != nil {
		return false
	}
	b, err := wire.AppendPacked(nil, wire.OwnPrefix+ownAck, packed)
	if err != nil {
		return false
	}
	return k.answer(b) == nil
}

// answer writes a frame to the other end.
func (k *conn) answer(b []byte) error {
	k.writeMu.Lock()
	defer k.writeMu.Unlock()
	_ = k.SetWriteDeadline(time.Now().Add(writeWait))
	_, err := k.out.Write(b)
	return err
}

// handleBatch handles, all at once, those messages of a batch that were not handled before. It
// returns the number of messages at the front of the batch that the caller may acknowledge.
func (in *inbox) handleBatch(ctx context.Context, peer string, d Duty, batch []arrived) (handled int) {
	in.mu.Lock()
	s := in.progress[peer]
	if s == nil || s.inc != batch[0].inc {
		s = &dutyProgress{inc: batch[0].inc}
		in.progress[peer] = s
	}
	in.mu.Unlock()

	s.duty[d].Lock()
	defer s.duty[d].Unlock()
	ok := make([]bool, len(batch))
	var wg sync.WaitGroup
	for i, a := range batch {
		if a.inc != s.inc {
			return 0 // a connection carries messages of one incarnation only
		}
		if a.seq <= s.last[d] {
			in.pool.count.repeated.Add(1)
			ok[i] = true
			continue
		}

		if len(batch) == 1 {
			ok[i] = in.handleOne(ctx, peer, a)
			continue
		}

		wg.Go(func() { ok[i] = in.handleOne(ctx, peer, a) })
	}

	wg.Wait()
	for handled < len(batch) && ok[handled] {
		s.last[d] = max(s.last[d], batch[handled].seq)
		handled++
	}

	return handled
}

// handleOne handles a message and reports whether the caller may acknowledge it. If handleOne
// returns false, the caller does not acknowledge the message and the peer sends it again.
func (in *inbox) handleOne(ctx context.Context, peer string, a arrived) bool {
	data, err := wire.UnpackEvent(a.packed)
	if err != nil {
		in.pool.count.bad.Add(1)
		return true // the same bytes would fail again
	}
	if err := in.deliver(ctx, peer, a.late, madeBy(a.maker, event.Event{Tag: a.tag, Data: data})); err != nil {
		if ctx.Err() == nil {
			in.pool.log.Warn("an event of a master cannot be handled now", "peer", peer, "tag", a.tag, "error", err)
		}
		return false
	}
	in.pool.count.handled.Add(1)
	return true
}

// handleSaltEvent handles an event of a Salt master. If the session key of the sender has not
// arrived yet, handleSaltEvent parks the event, up to maxParked events of each sender.
func (in *inbox) handleSaltEvent(from netip.Addr, peer, tag string, data []byte) error {
	p := in.pool
	v := p.view.Load()
	m, ok := v.rec.Member(peer)
	if !ok || m.Own {
		return wire.ErrProof
	}

	key, ok := v.sessions[peer]
	if !ok && !in.fromSalt(m, from) {
		return wire.ErrProof // without a session key, only the address identifies the sender
	}

	if !ok {
		in.mu.Lock()
		defer in.mu.Unlock()
		size := len(data)
		for _, e := range in.parked[peer] {
			size += len(e.data)
		}

		if len(in.parked[peer]) >= maxParked || size > maxParkedSize {
			p.count.dropped.Add(1)
			return errRate
		}

		in.parked[peer] = append(in.parked[peer], parkedEvent{from, tag, append([]byte(nil), data...)})
		return nil
	}

	load, err := wire.OpenEvent(data, key)
	if err != nil {
		return err
	}

	p.count.handled.Add(1)
	in.rememberAddress(peer, from)
	return in.deliver(p.ctx, peer, Late{}, event.Event{Tag: tag, Data: load, Origin: event.Peer, Maker: event.Unknown})
}

// unpark handles the events that waited for a session key.
func (in *inbox) unpark(peer string) {
	in.pool.wg.Go(func() {
		in.mu.Lock()
		events := in.parked[peer]
		delete(in.parked, peer)
		in.mu.Unlock()
		for _, e := range events {
			if err := in.handleSaltEvent(e.from, peer, e.tag, e.data); err != nil {
				in.pool.count.bad.Add(1)
			}
		}
	})
}
