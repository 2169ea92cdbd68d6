package cluster

import (
	"saltern/master/value"
)

// Masters tell each other which requests of minions they have taken, so that an attacker cannot
// replay a recorded request at another master. Nothing waits for these messages and none is
// acknowledged. If a connection breaks, the next one begins with all that the master has taken.
// Masters of older releases count the message as bad and carry on.

// maxTaken bounds the requests that wait for a peer, and those in one message. Beyond that the
// oldest are dropped and counted.
const (
	maxTaken     = 1 << 16
	takenMessage = 1 << 12
)

// takenMsg lists digests of requests that a master has taken.
type takenMsg [][16]byte

// Taken reports a request to the peers before it takes effect. It never blocks. It does not stop a
// replay at a peer that has not got the report yet: within the network latency, or while the
// connection is down.
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

// allTaken queues all taken requests for a new connection.
func (l *link) allTaken() {
	if h := l.pool.handler.Load(); h != nil {
		l.tellTaken((*h).OwnNonces(maxTaken)...)
	}
}

// takeTaken returns some of the waiting requests.
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

// heardTaken handles such a report of a member.
func (p *Pool) heardTaken(data []byte) error {
	list, err := parseTaken(data)
	if err != nil {
		return err
	}

	p.mu.Lock()
	h := p.handler.Load()
	if h == nil { // Serve passes it on later
		p.earlyTaken = append(p.earlyTaken, list[:min(len(list), maxTaken-len(p.earlyTaken))]...)
	}
	p.mu.Unlock()

	if h != nil {
		(*h).LearnNonces(list)
	}

	return nil
}
