package zmtp

import (
	"errors"
	"sync"
	"sync/atomic"
)

const (
	// shardQueue is the number of messages that may wait for a shard. When the queue is full,
	// Publish waits until the shard gets processor time.
	shardQueue = 256
	// The shard joins waiting messages into one write up to these limits.
	burstItems = 64
	burstBytes = 256 << 10
)

// subscriber is the Pub's part of a connection.
type subscriber struct {
	member *member
	topics topics
	// answered is the time at which the last answered PING was created, or before the first answer
	// the time of the connection. It is in nanoseconds since the listener's start.
	answered atomic.Int64
	index    int // index in shard.subs; guarded by shard.mu
}

// shard writes to one part of the subscribers.
type shard struct {
	count *counters
	// When there is a TTL, the shard sends a PING after every message, because libzmq drops the TTL
	// of a PING when the next message arrives. Message and PING go out in one write. With two
	// writes a subscriber might get the message and, if this host vanished at that moment, no PING.
	pings   *pings
	queue   chan *publication
	drained chan struct{} // closed when publishLoop has ended

	mu   sync.Mutex
	subs []*subscriber

	burst, some []*publication // slices that publishLoop reuses for each burst
}

func (s *shard) addSubscriber(sub *subscriber) {
	s.mu.Lock()
	sub.index = len(s.subs)
	s.subs = append(s.subs, sub)
	s.mu.Unlock()
}

func (s *shard) remove(sub *subscriber) {
	s.mu.Lock()
	last := len(s.subs) - 1
	s.subs[sub.index] = s.subs[last]
	s.subs[sub.index].index = sub.index
	s.subs[last] = nil
	s.subs = s.subs[:last]
	s.mu.Unlock()
}

// publishLoop runs in the shard's goroutine. It writes published messages to the subscribers until
// the queue is closed and empty.
func (s *shard) publishLoop() {
	defer close(s.drained)
	for m := range s.queue {
		s.collect(m)
		if m := s.burst[len(s.burst)-1]; m.do == nil {
			s.fanOut(s.burst)
		} else {
			s.fanOut(s.burst[:len(s.burst)-1])
			m.do(s)
		}
		clear(s.burst)
	}
}

// collect sets burst to m and the messages that wait after it, up to the burst's limits or up to a
// barrier.
func (s *shard) collect(m *publication) {
	s.burst = append(s.burst[:0], m)
	size := len(m.wire)
	for m.do == nil && len(s.burst) < burstItems && size < burstBytes {
		select {
		case next, ok := <-s.queue:
			if !ok {
				return
			}
			m = next
			s.burst = append(s.burst, m)
			size += len(m.wire)
		default:
			return
		}
	}
}

// fanOut writes a burst to all subscribers.
func (s *shard) fanOut(burst []*publication) {
	if len(burst) == 0 {
		return
	}

	whole, ping := s.joinWires(burst)
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, sub := range s.subs {
		if sub.topics.everything() {
			s.sendTo(sub, burst, whole, ping)
			continue
		}

		s.some = sub.topics.matches(s.some[:0], burst)
		if len(s.some) > 0 {
			whole, ping := s.joinWires(s.some)
			s.sendTo(sub, s.some, whole, ping)
		}
	}

	clear(s.some)
}

// sendOne sends b to the subscriber with this Peer.ID. It reports whether the subscriber exists and
// its queue had room.
func (s *shard) sendOne(id uint64, b []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subs {
		if sub.member.peer.ID == id {
			return sub.member.outbox.sendPackets(packet{b: append(b, pingOf(sub, s.pings.following())...)}) == nil
		}
	}
	return false
}

// joinWires returns the joined bytes of a burst and of the PING that follows the burst, and the
// PING alone.
func (s *shard) joinWires(ms []*publication) (joined, ping []byte) {
	if len(ms) == 1 {
		return ms[0].pinged, ms[0].pinged[len(ms[0].wire):]
	}
	ping = s.pings.following()
	size := len(ping)
	for _, m := range ms {
		size += len(m.wire)
	}
	b := make([]byte, 0, size)
	for _, m := range ms {
		b = append(b, m.wire...)
	}
	return append(b, ping...), ping
}

// pingOf returns ping if the subscriber understands PINGs, otherwise nil.
func pingOf(sub *subscriber, ping []byte) []byte {
	if sub.member.minor > 0 {
		return ping
	}
	return nil
}

// sendTo writes messages to one subscriber, and ping after them. joined holds the joined bytes of
// the messages and of ping.
func (s *shard) sendTo(sub *subscriber, ms []*publication, joined, ping []byte) {
	joined = joined[:len(joined)-len(ping)]
	ping = pingOf(sub, ping)
	joined = joined[:len(joined)+len(ping)]
	sent, size, err := sub.member.outbox.publish(ms, joined, ping)
	s.count.sent.Add(uint64(sent))
	s.count.bytes.Add(uint64(size))
	if errors.Is(err, errDropped) {
		s.count.drop.Add(uint64(len(ms) - sent))
	}
}
