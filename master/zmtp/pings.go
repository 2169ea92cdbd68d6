package zmtp

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// pings creates the PINGs of a listener. With a TTL the PINGs are dated: their context, which the
// PONG repeats (RFC 37, "Heartbeating"; libzmq zmtp_engine.cpp process_heartbeat_message), names
// the listener and the time. TCP keeps the order, so a PONG proves that the peer has received
// everything that was written before the PING.
type pings struct {
	ttl  time.Duration
	born time.Time
	// mark identifies the listener. A proxy that moves a connection here may deliver the PONG for a
	// PING of another listener.
	mark [8]byte
}

func newPings(ttl time.Duration) *pings {
	p := &pings{ttl: ttl, born: time.Now()}
	_, _ = rand.Read(p.mark[:]) // rand.Read never fails
	return p
}

// pingAt returns a PING that carries the time now. All PINGs of a listener have the same length.
func (p *pings) pingAt(now time.Time) []byte {
	body := binary.BigEndian.AppendUint16(make([]byte, 0, 2+maxPingContext), uint16(p.ttl/(100*time.Millisecond)))
	if p.ttl > 0 {
		body = append(body, p.mark[:]...)
		body = binary.BigEndian.AppendUint64(body, uint64(max(now.Sub(p.born), 0)))
	}
	return appendCommand(nil, "PING", body)
}

// following returns the PING to send after a message, or nil without a TTL.
func (p *pings) following() []byte {
	if p.ttl == 0 {
		return nil
	}
	return p.pingAt(time.Now())
}

// pingTime returns the time of the PING that a PONG with this context answers. It returns false if
// another listener created that PING, or if the time is in the future.
func (p *pings) pingTime(context []byte, now time.Time) (time.Time, bool) {
	if len(context) != maxPingContext || string(context[:len(p.mark)]) != string(p.mark[:]) {
		return time.Time{}, false
	}
	at := p.born.Add(time.Duration(binary.BigEndian.Uint64(context[len(p.mark):]) & (1<<63 - 1)))
	return at, !at.After(now)
}

// answers records that a subscriber has sent a PONG with this context.
func (p *pings) answers(sub *subscriber, context []byte) {
	at, ok := p.pingTime(context, time.Now())
	if since := int64(at.Sub(p.born)); ok && since > sub.answered.Load() {
		sub.answered.Store(since)
	}
}

// peerSeen returns the peer of a subscriber with Answered set.
func (p *pings) peerSeen(sub *subscriber) Peer {
	peer := sub.member.peer
	if p.ttl > 0 && sub.member.minor > 0 {
		peer.Answered = p.born.Add(time.Duration(sub.answered.Load()))
	}
	return peer
}
