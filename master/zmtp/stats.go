package zmtp

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Stats holds the counters of a listener since its start. The fields of type int64 are not counters
// but present values.
type Stats struct {
	Conns      int64 // open connections, including those in handshake
	Handshakes int64 // connections whose READY has not arrived yet

	Accepted    uint64 // connections taken from the listener
	Refused     uint64 // connections closed at accept: MaxConns, MaxPerSource, closing
	BadPeers    uint64 // connections closed for a protocol violation or an exceeded limit
	LateShakes  uint64 // connections closed because READY did not arrive in time
	Silent      uint64 // connections closed because the peer sent nothing for too long
	Stalled     uint64 // connections closed because the peer did not read
	AcceptFails uint64 // errors of accept, as when descriptors are used up
	NoRoom      uint64 // messages, values or answers refused for lack of memory
	Unproven    uint64 // connections closed because they sent no authenticated request in time

	// Counters of a Router.
	Requests uint64 // requests passed to the handler
	Busy     uint64 // requests not handled because no worker came free in time
	Panics   uint64 // panics of the handler
	Working  int64  // handlers that run
	Parked   int64  // handlers that wait without a worker, see Account.Park

	// Counters of a Pub.
	Published uint64 // messages given to Publish
	Sent      uint64 // messages written or queued, summed over all subscribers
	Dropped   uint64 // messages dropped because a subscriber's queue was full
	Bytes     uint64 // bytes of the sent messages, summed over all subscribers
	Slow      int64  // subscribers with a queue
	Queued    int64  // bytes in the queues of all subscribers
}

type counters struct {
	conns, handshakes                                          atomic.Int64
	accepted, refused, badPeers, lateShakes, silent, stalled   atomic.Uint64
	acceptFails, requests, busy, panics, published, sent, drop atomic.Uint64
	bytes, noRoom, unproven                                    atomic.Uint64
	working, parked                                            atomic.Int64
}

func (c *counters) snapshot() Stats {
	accepted := c.accepted.Load() // read before conns, see hub.admitConnection
	return Stats{
		Conns:       c.conns.Load(),
		Handshakes:  c.handshakes.Load(),
		Accepted:    accepted,
		Refused:     c.refused.Load(),
		BadPeers:    c.badPeers.Load(),
		LateShakes:  c.lateShakes.Load(),
		Silent:      c.silent.Load(),
		Stalled:     c.stalled.Load(),
		AcceptFails: c.acceptFails.Load(),
		NoRoom:      c.noRoom.Load(),
		Unproven:    c.unproven.Load(),
		Requests:    c.requests.Load(),
		Busy:        c.busy.Load(),
		Panics:      c.panics.Load(),
		Working:     c.working.Load(),
		Parked:      c.parked.Load(),
		Published:   c.published.Load(),
		Sent:        c.sent.Load(),
		Dropped:     c.drop.Load(),
		Bytes:       c.bytes.Load(),
	}
}

// throttle logs one warning per period, so that many faulty peers cannot fill the log. It logs
// further warnings of the period at debug level. The counters include all faults.
type throttle struct {
	mu      sync.Mutex
	next    time.Time
	skipped int
}

func (t *throttle) warn(log *slog.Logger, msg string, args ...any) {
	t.mu.Lock()
	now := time.Now()
	if now.Before(t.next) {
		t.skipped++
		t.mu.Unlock()
		log.Debug(msg, args...)
		return
	}
	skipped := t.skipped
	t.next, t.skipped = now.Add(5*time.Second), 0
	t.mu.Unlock()
	log.Warn(msg, append(args, "skipped", skipped)...)
}
