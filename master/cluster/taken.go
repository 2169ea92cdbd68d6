package cluster

import (
	"saltern/master/value"
)

// Masters report to each other which requests of minions they have accepted, so that an attacker
// cannot replay a recorded request at another master. Receivers do not acknowledge these messages,
// and senders do not wait for them. When a connection is made again, each master first reports all
// requests that it has accepted. A master of an older release counts the message as a bad one and
// continues.

// maxTaken bounds the digests that wait for a peer. Overflow policy: the oldest digests are dropped
// and counted. takenMessage bounds the digests in one message.
const (
	maxTaken     = 1 << 16
	takenMessage = 1 << 12
)

// takenMsg lists the digests of requests that a master has accepted.
type takenMsg [][16]byte

// Taken reports a request of a minion, by its digest, to the peers. Call it before the request
// takes effect. Taken never blocks. It does not prevent a replay at a peer that has not received
// the report yet: within the network latency, or while the connection is down.
func (p *Pool) Taken(k [16]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if !l.plain && l.up.Load() {
			l.tellTaken(k)
		}
	}
}

func (l *link) tellTaken(list ...[16]byte) {
	l.mu.Lock()
	l.taken = append(l.taken, list...)
	if n := len(l.taken) - maxTaken; n > 0 {
		l.lostControl += uint64(n)
		l.taken = append(l.taken[:0:0], l.taken[n:]...)
	}
	l.mu.Unlock()
	l.wakeWriter()
}

// allTaken queues, for a new connection, all requests that this master has accepted.
func (l *link) allTaken() {
	if h := l.pool.handler.Load(); h != nil {
		l.tellTaken((*h).OwnNonces(maxTaken)...)
	}
}

// takeTaken removes and returns the next waiting requests, at most takenMessage.
func (l *link) takeTaken() takenMsg {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.taken), takenMessage)
	out := l.taken[:n:n]
	if l.taken = l.taken[n:]; len(l.taken) == 0 {
		l.taken = nil
	}
	return out
}

func packTaken(list takenMsg) *value.Map {
	b := make([]byte, 0, len(list)*16)
	for _, k := range list {
		b = append(b, k[:]...)
	}
	return value.NewMap("requests", b)
}

func parseTaken(data []byte) (takenMsg, error) {
	_, b, err := ownBytes(data, "requests", 16, maxTaken)
	if err != nil {
		return nil, err
	}
	out := make(takenMsg, 0, len(b)/16)
	for ; len(b) > 0; b = b[16:] {
		out = append(out, [16]byte(b))
	}
	return out, nil
}

// heardTaken passes a member's report of accepted requests to the handler.
func (p *Pool) heardTaken(data []byte) error {
	list, err := parseTaken(data)
	if err != nil {
		return err
	}

	p.mu.Lock()
	h := p.handler.Load()
	if h == nil { // Serve will pass the requests to the handler
		p.earlyTaken = append(p.earlyTaken, list[:min(len(list), maxTaken-len(p.earlyTaken))]...)
	}
	p.mu.Unlock()

	if h != nil {
		(*h).LearnNonces(list)
	}

	return nil
}
