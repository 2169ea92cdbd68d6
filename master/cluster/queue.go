package cluster

import (
	"sync"
	"time"
)

// Duty is a kind of traffic with a queue of its own.
type Duty uint8

// The duties that are numbered and acknowledged.
const (
	Jobs Duty = iota
	Returns
	Events
	duties
)

// String is the word for status.
func (d Duty) String() string { return [...]string{"jobs", "returns", "events"}[d] }

// bounds of one queue.
type bounds struct {
	count, bytes int
	age          time.Duration // older messages are not sent any more
	dropOldest   bool
}

var dutyBounds = [duties]bounds{
	Jobs:    {1024, 16 << 20, 30 * time.Second, true},
	Returns: {8192, 64 << 20, 10 * time.Minute, true},
	Events:  {8192, 16 << 20, time.Minute, false},
}

// window is how much may be under way without an acknowledgement.
const (
	windowCount = 512
	windowBytes = 8 << 20
)

// item is one message for one peer.
type item struct {
	seq    uint64
	at     time.Time
	tag    string
	maker  string        // of the event, see makerText
	packed []byte        // data of the event, shared between peers
	sealed func() []byte // the same for a Salt master, made on first use
	acked  func()        // called once when it was handled there, may be nil
}

func (i *item) size() int { return len(i.tag) + len(i.packed) + 64 }

// queue holds what waits for a peer, of one duty: first what was sent and is
// not acknowledged, then what was not sent.
type queue struct {
	b bounds

	mu     sync.Mutex
	items  []*item
	sent   int // of items
	bytes  int
	seq    uint64
	lost   uint64
	handed uint64
}

// put adds a message and reports whether it has room.
func (q *queue) put(i *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) >= q.b.count || len(q.items) > 0 && q.bytes+i.size() > q.b.bytes {
		q.lost++
		if !q.b.dropOldest {
			return false
		}
		q.remove(0)
	}
	q.seq++
	i.seq = q.seq
	q.items = append(q.items, i)
	q.bytes += i.size()
	return true
}

func (q *queue) remove(at int) {
	q.bytes -= q.items[at].size()
	q.items[at] = nil
	if at == 0 {
		q.items = q.items[1:]
	} else {
		q.items = append(q.items[:at], q.items[at+1:]...)
	}
	if at < q.sent {
		q.sent--
	}
}

// next is the next message to send, nil when there is none or the window is
// full. With reliable unset it is done with as soon as it is taken.
func (q *queue) next(now time.Time, reliable bool) *item {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.sent < len(q.items) {
		i := q.items[q.sent]
		if now.Sub(i.at) > q.b.age {
			q.lost++
			q.remove(q.sent)
			continue
		}
		if !reliable {
			q.handed++
			q.remove(q.sent)
			return i
		}
		if q.sent >= windowCount || q.sent > 0 && q.sentBytes()+i.size() > windowBytes {
			return nil
		}
		q.sent++
		return i
	}
	return nil
}

func (q *queue) sentBytes() int {
	n := 0
	for _, i := range q.items[:q.sent] {
		n += i.size()
	}
	return n
}

// ack takes out what was handled.
func (q *queue) ack(seq uint64) {
	q.mu.Lock()
	var done []*item
	for q.sent > 0 && q.items[0].seq <= seq {
		done = append(done, q.items[0])
		q.handed++
		q.remove(0)
	}
	q.mu.Unlock()
	for _, i := range done {
		if i.acked != nil {
			i.acked()
		}
	}
}

// again marks everything unsent, after a break.
func (q *queue) again() {
	q.mu.Lock()
	q.sent = 0
	q.mu.Unlock()
}

// QueueStatus is what waits for a peer in one duty.
type QueueStatus struct {
	Waiting int           // messages, those under way included
	Bytes   int           // of them
	Lag     time.Duration // age of the oldest
	Handled uint64        // since the start
	Lost    uint64        // for lack of room or because they were too old
}

func (q *queue) status(now time.Time) QueueStatus {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := QueueStatus{Waiting: len(q.items), Bytes: q.bytes, Handled: q.handed, Lost: q.lost}
	if len(q.items) > 0 {
		s.Lag = now.Sub(q.items[0].at)
	}
	return s
}
