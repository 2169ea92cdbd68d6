package cluster

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Duty is a kind of traffic with a separate queue for each peer.
type Duty uint8

// The duties that are numbered and acknowledged.
const (
	Jobs Duty = iota
	Returns
	Events
	duties
)

// String returns the name of the duty as Status shows it.
func (d Duty) String() string { return [...]string{"jobs", "returns", "events"}[d] }

// bounds limits one queue.
type bounds struct {
	count, bytes int
	maxAge       time.Duration // age at which a message is dropped instead of sent
	dropOldest   bool
}

// jobFor is how long a job waits for a peer. A peer that receives the job in time sends it to those
// of its minions that have not run it. After this time, users no longer expect the job to run.
const jobFor = 10 * time.Minute

// keyFor is how long a change of a key waits for a peer in the queue of the jobs.
const keyFor = 30 * time.Second

// QuestionFor is how long a question of one master to others waits for a peer. After this time nobody
// waits for the answer, and the peer must not do what it was asked.
const QuestionFor = 5 * time.Second

var dutyBounds = [duties]bounds{
	Jobs:    {4096, 16 << 20, jobFor, true},
	Returns: {8192, 64 << 20, 10 * time.Minute, true},
	Events:  {8192, 16 << 20, time.Minute, false},
}

// The window bounds the messages that a link sends without an acknowledgement.
const (
	windowCount = 512
	windowBytes = 8 << 20
)

// item is one message for one peer.
type item struct {
	seq      uint64
	queuedAt time.Time
	tag      string
	maker    string // the maker of the event, see makerText
	packed   []byte // data of the event; the items of all peers share these bytes
	// sealed returns the data encrypted for Salt's masters, or nil when that fails. It encrypts the
	// data at the first call.
	sealed     func() []byte
	acked      func()        // called once, when the peer has handled the message; may be nil
	isJob      bool          // the message is a job to publish
	keepFor    time.Duration // how long the message may wait; 0 means as long as its duty allows
	sentBefore bool          // the message was sent on an earlier connection
	sentLate   bool          // the message was announced as late, see lateAfter
	retold     bool          // the peer got the job before, see link.sentLate
	brought    bool          // see Late.Brought
}

// lateAfter is the age from which a job is treated as late: by then its minions may have received
// the job from another master, or may have been restarted.
const lateAfter = time.Second

// isLate reports whether a job would be late if sent now.
func (i *item) isLate(now time.Time) bool {
	return i.isJob && (i.sentBefore || now.Sub(i.queuedAt) > lateAfter)
}

func (i *item) byteSize() int { return len(i.tag) + len(i.packed) + 64 }

// queue holds the messages of one duty for one peer: first the messages that were sent and not
// acknowledged, then the unsent messages.
type queue struct {
	bounds bounds

	mu     sync.Mutex
	items  []*item
	sent   int // number of items that were sent and not acknowledged; these items come first
	bytes  int
	seq    uint64
	lost   uint64
	handed uint64
	// lostJobs holds the last jobs that were dropped without being sent.
	lostJobs []*item
}

// maxLostJobs is how many jobs queue.lostJobs holds. Overflow policy: the oldest are dropped.
const maxLostJobs = 64

// put adds a message to the queue and reports whether there was room for it.
func (q *queue) put(i *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := func() bool {
		return len(q.items) >= q.bounds.count || len(q.items) > 0 && q.bytes+i.byteSize() > q.bounds.bytes
	}
	if full() {
		q.expire(i.queuedAt)
	}

	for full() {
		if !q.bounds.dropOldest {
			q.lost++
			return false
		}
		q.loseItem(q.leastDear())
	}

	q.seq++
	i.seq = q.seq
	q.items = append(q.items, i)
	q.bytes += i.byteSize()

	return true
}

// isExpired reports whether a message has waited for longer than it may.
func (q *queue) isExpired(i *item, now time.Time) bool {
	return now.Sub(i.queuedAt) > cmp.Or(i.keepFor, q.bounds.maxAge)
}

// expire drops unsent messages that have waited for longer than they may.
func (q *queue) expire(now time.Time) {
	for at := q.sent; at < len(q.items); {
		if q.isExpired(q.items[at], now) {
			q.loseItem(at)
		} else {
			at++
		}
	}
}

// leastDear returns the index of the message that the queue drops when it is full: the oldest
// unsent message with a limited keep time (keepFor), or without such a message the oldest of all.
func (q *queue) leastDear() int {
	for at := q.sent; at < len(q.items); at++ {
		if q.items[at].keepFor > 0 {
			return at
		}
	}
	return 0
}

// holdsTag reports whether a message with this tag is still in the queue.
func (q *queue) holdsTag(tag string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.items, func(i *item) bool { return i.tag == tag })
}

// loseItem removes the message with that index from the queue and counts it as lost. The peer does
// not get the message.
func (q *queue) loseItem(index int) {
	q.lost++
	if i := q.items[index]; i.isJob && !i.retold {
		q.lostJobs = append(q.lostJobs[max(0, len(q.lostJobs)-maxLostJobs+1):], i)
	}
	q.remove(index)
}

// takeLost drops jobs that are too old, and returns all jobs that were dropped unsent since the
// last call of takeLost.
func (q *queue) takeLost(now time.Time) []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire(now)
	lost := q.lostJobs
	q.lostJobs = nil
	return lost
}

func (q *queue) remove(at int) {
	q.bytes -= q.items[at].byteSize()
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

// nextToSend returns the next message to send, or nil when there is none or the window is full.
// reliable is false for a peer that does not acknowledge messages: then nextToSend also removes the
// message from the queue.
func (q *queue) nextToSend(now time.Time, reliable bool) *item {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.sent < len(q.items) {
		i := q.items[q.sent]
		if q.isExpired(i, now) {
			q.loseItem(q.sent)
			continue
		}
		if !reliable {
			q.handed++
			q.remove(q.sent)
			return i
		}

		if q.sent >= windowCount || q.sent > 0 && q.sentBytes()+i.byteSize() > windowBytes {
			return nil
		}

		q.sent++
		i.sentLate = i.isLate(now)
		return i
	}

	return nil
}

func (q *queue) sentBytes() int {
	n := 0
	for _, i := range q.items[:q.sent] {
		n += i.byteSize()
	}
	return n
}

// acknowledge removes the messages up to seq, calls their acked functions and returns them.
func (q *queue) acknowledge(seq uint64) (acknowledged []*item) {
	q.mu.Lock()
	for q.sent > 0 && q.items[0].seq <= seq {
		acknowledged = append(acknowledged, q.items[0])
		q.handed++
		q.remove(0)
	}
	q.mu.Unlock()
	for _, i := range acknowledged {
		if i.acked != nil {
			i.acked()
		}
	}
	return acknowledged
}

// markUnsent marks all messages as unsent, after the connection broke.
func (q *queue) markUnsent() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, i := range q.items[:q.sent] {
		i.sentBefore = true
	}
	q.sent = 0
}

// lateFirst reports whether the next message to send is a late job, and returns when that job was
// queued.
func (q *queue) lateFirst(now time.Time) (at time.Time, late bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sent >= len(q.items) || !q.items[q.sent].isLate(now) {
		return time.Time{}, false
	}
	return q.items[q.sent].queuedAt, true
}

// isEmpty reports whether the peer has handled all messages.
func (q *queue) isEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) == 0
}

// QueueStatus describes the queue of one duty for one peer.
type QueueStatus struct {
	Waiting int           // number of messages, including those sent but not acknowledged
	Bytes   int           // bytes of the waiting messages
	Lag     time.Duration // age of the oldest waiting message
	Handled uint64        // number of messages that the peer has handled since this master's start
	Lost    uint64        // messages dropped because the queue was full or they were too old
}

func (q *queue) status(now time.Time) QueueStatus {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := QueueStatus{Waiting: len(q.items), Bytes: q.bytes, Handled: q.handed, Lost: q.lost}
	if len(q.items) > 0 {
		s.Lag = now.Sub(q.items[0].queuedAt)
	}
	return s
}
