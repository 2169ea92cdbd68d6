package cluster

import (
	"context"
	"fmt"
	"time"

	"saltern/internal/pause"
	"saltern/master/cluster/wire"
)

// Masters exchange what minions have reported to them (grains, mines). Receivers do not acknowledge
// these data, and nothing waits for them. Data may be lost because a queue is full or a connection
// breaks; the next comparison between the masters finds the loss; see package share. A master of an
// older release counts a message with such data as a bad message and continues.

// maxData bounds the bytes that wait for one peer. When the queue is full, SendData refuses the
// newest message. An empty queue accepts a message of any size.
const maxData = 16 << 20

// dataQueue holds the data messages that wait for a peer.
type dataQueue struct {
	waiting [][]byte
	bytes   int
	writing bool // writeMessages holds a part of the data that it has not written yet
}

// SendData sends b to a peer, or to all connected peers if peer is "". The pool of the receiver
// calls Handler.PeerData with b. SendData reports whether the queue of each of these peers had
// room. It never blocks. The caller must not change b afterwards.
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
		l.lostControl++
		return false
	}
	l.data.waiting = append(l.data.waiting, b)
	l.data.bytes += len(b)
	l.wakeWriter()
	return true
}

// dropData discards the data that waited for a closed connection.
func (l *link) dropData() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = dataQueue{}
}

// connected informs the handler that the link has a connection. The caller must call dropData
// before connected.
func (l *link) connected() {
	if h := l.pool.handler.Load(); h != nil {
		(*h).PeerConnected(l.id)
	}
}

// FlushData waits until the kernel has accepted all data that SendData queued for the connected
// peers, or until ctx ends. A stopping master calls FlushData because its peers cannot learn in any
// other way what its minions reported last.
func (p *Pool) FlushData(ctx context.Context) {
	for p.owesData() {
		if pause.For(ctx, 5*time.Millisecond) != nil {
			return
		}
	}
}

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

// wroteData records that the kernel has accepted the data that packData returned.
func (l *link) wroteData() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data.writing = false
}

// packData appends the next part of the waiting data to buf and returns the longer buf.
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

// heardData passes a data message of a member to the handler.
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
