package cluster

import (
	"saltern/master/value"
)

// Masters tell each other which requests of minions they have taken, so that an attacker cannot
// replay a recorded request at another master. Nobody acknowledges these messages or waits for
// them. If a connection breaks, the next one begins with all that the master has taken. Masters of
// older releases count the message as bad and carry on.

// maxTaken bounds the digests that wait for a peer; beyond that the oldest are dropped and counted.
// takenMessage bounds those in one message.
const (
	maxTaken     = 1 << 16
	takenMessage = 1 << 12
)

// takenMsg lists digests of requests that a master has taken.
type takenMsg [][16]byte

// Taken reports a request of a minion, by its digest, to the peers; the caller calls it before the
// request takes effect. It never blocks. It does not stop a replay at a peer that has not got the
// report yet: within the network latency, or while the connection is down.
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

// allTaken queues all requests that this master has taken for a new connection.
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

// heardTaken hands a member's report of taken requests to the handler.
func (p *Pool) heardTaken(data []byte) error {
	list, err := parseTaken(data)
	if err != nil {
		return err
	}

	p.mu.Lock()
	h := p.handler.Load()
	if h == nil { // Serve hands them to the handler later
		p.earlyTaken = append(p.earlyTaken, list[:min(len(list), maxTaken-len(p.earlyTaken))]...)
	}
	p.mu.Unlock()

	if h != nil {
		(*h).LearnNonces(list)
	}

	return nil
}
