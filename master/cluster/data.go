package cluster

import (
	"context"
	"fmt"
	"time"

	"saltern/internal/pause"
	"saltern/master/cluster/wire"
)

// Masters tell each other what minions have told them. A duty of its own: nothing
// waits for it and nothing of it is acknowledged. What is lost, for lack of room or
// with a connection, is found by the comparison that follows, see package share.
// Masters of before this message count it as bad and go on.

// maxData bounds the bytes that wait for a peer. Overflow policy: the newest is
// refused; a single one always has room.
const maxData = 16 << 20

// dataQueue is what waits for a peer.
type dataQueue struct {
	waiting [][]byte
	bytes   int
	writing bool // some of it is in the hands of write
}

// SendData sends a peer what its Handler gets by PeerData, "" all that are connected. It
// reports whether there was room at each of them. It never blocks; b must not be
// changed afterwards.
func (p *Pool) SendData(peer string, b []byte) bool {
	ok := true
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, l := range p.links {
		if l.plain || !l.up.Load() || peer != "" && peer != id {
			continue
		}
		ok = l.putData(b) && ok
	}
	return ok
}

func (l *link) putData(b []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.data.waiting) > 0 && l.data.bytes+len(b) > maxData {
		l.lost++
		return false
	}
	l.data.waiting = append(l.data.waiting, b)
	l.data.bytes += len(b)
	l.wakeWriter()
	return true
}

// dropData forgets what waited for a connection that is no more.
func (l *link) dropData() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = dataQueue{}
}

// connected begins a connection, after dropData.
func (l *link) connected() {
	if h := l.p.handler.Load(); h != nil {
		(*h).PeerConnected(l.id)
	}
}

// Drain waits until what SendData has taken is written to all peers that are connected, or
// ctx ends. It is for a master that stops: its peers have no other way to what it was told last.
func (p *Pool) Drain(ctx context.Context) {
	for p.owesData() {
		if pause.For(ctx, drainEvery) != nil {
			return
		}
	}
}

const drainEvery = 5 * time.Millisecond

func (p *Pool) owesData() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if l.up.Load() && l.owesData() {
			return true
		}
	}
	return false
}

func (l *link) owesData() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.data.writing || len(l.data.waiting) > 0
}

// wroteData notes that what packData gave is with the kernel.
func (l *link) wroteData() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data.writing = false
}

// packData adds some of what waits to buf.
func (l *link) packData(buf []byte) ([]byte, error) {
	for len(buf) <= 256<<10 {
		l.mu.Lock()
		if len(l.data.waiting) == 0 {
			l.mu.Unlock()
			break
		}

		b := l.data.waiting[0]
		l.data.waiting[0] = nil
		l.data.waiting = l.data.waiting[1:]
		l.data.bytes -= len(b)
		l.data.writing = true
		l.mu.Unlock()

		packed, err := wire.Pack(b)
		if err != nil {
			return buf, err
		}

		if buf, err = wire.AppendPacked(buf, wire.OwnPrefix+ownData, packed); err != nil {
			return buf, err
		}
	}

	return buf, nil
}

// heardData takes such a message of a member.
func (p *Pool) heardData(peer string, data []byte) error {
	v, err := unpackOwn(data)
	if err != nil {
		return err
	}
	b, ok := v.([]byte)
	if !ok {
		return fmt.Errorf("%w: data", errOwn)
	}
	if h := p.handler.Load(); h != nil {
		(*h).PeerData(peer, append([]byte(nil), b...))
	}
	return nil
}
