package event

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/value"
)

// defaultMaxSize is the default of max_event_size, in bytes.
const defaultMaxSize = 1 << 20

// Bus delivers every fired event to every subscriber. All methods may be called concurrently.
type Bus struct {
	now     func() time.Time
	maxSize int

	mu     sync.Mutex
	sinks  map[sink]struct{}
	closed bool

	fired   atomic.Uint64
	lost    atomic.Uint64
	readers atomic.Int64 // number of socket readers, for which events must be packed
}

// sink receives each event. The bus calls deliver while it holds its lock, so deliver must not
// block.
type sink interface {
	deliver(*Event)
	end()
}

// NewBus returns a bus. now returns the time for _stamp. maxSize bounds the packed data of an event
// in bytes (max_event_size); 0 means the default. If an event is larger, its packed form has large
// values replaced.
func NewBus(now func() time.Time, maxSize int) *Bus {
	if maxSize <= 0 {
		maxSize = defaultMaxSize
	}
	return &Bus{now: now, maxSize: maxSize, sinks: map[sink]struct{}{}}
}

// Stamp returns a time as text in the form in which Salt 3008 writes _stamp: UTC, ISO 8601 with
// microseconds (omitted when they are zero, as in Python) and "+00:00".
func Stamp(t time.Time) string {
	t = t.UTC().Truncate(time.Microsecond)
	if t.Nanosecond() == 0 {
		return t.Format("2006-01-02T15:04:05+00:00")
	}
	return t.Format("2006-01-02T15:04:05.000000+00:00")
}

// Fire puts an event on the bus and returns at once. As Salt does, it sets _stamp to the time of
// firing; an existing _stamp keeps its position in the map. Fire does not change data itself. The
// subscribers share data and everything in it, so the caller must not change them after the call.
// Source: salt/utils/event.py SaltEvent.fire_event.
func (b *Bus) Fire(tag string, data *value.Map) error {
	return b.stampAndDeliver(Event{Tag: tag, Data: data, Origin: Internal})
}

// FireFor works like Fire, for an event of a minion, which chose the data and possibly the tag.
func (b *Bus) FireFor(minion, tag string, data *value.Map) error {
	return b.stampAndDeliver(Event{Tag: tag, Data: data, Origin: Minion, Minion: minion})
}

// FireBy works like Fire, for an event that this process fires for somebody else. origin is the
// event's origin. For a minion's event call [Bus.FireFor] instead, for a peer's event [Bus.Relay].
func (b *Bus) FireBy(origin Origin, tag string, data *value.Map) error {
	return b.stampAndDeliver(Event{Tag: tag, Data: data, Origin: origin})
}

func (b *Bus) stampAndDeliver(e Event) error {
	e.Data = e.Data.Clone()
	e.Data.Set("_stamp", Stamp(b.now()))
	return b.deliver(e)
}

// Relay puts an event from another process on the bus, with its origin. The event keeps its _stamp;
// if it has none, Relay sets it to the present time. Relay does not change the map in e.
func (b *Bus) Relay(e Event) error {
	if _, ok := e.Data.Get("_stamp"); !ok {
		e.Data = e.Data.Clone()
		e.Data.Set("_stamp", Stamp(b.now()))
	}
	e.Data = orEmpty(e.Data)
	return b.deliver(e)
}

func (b *Bus) deliver(e Event) error {
	if err := CheckTag(e.Tag); err != nil {
		return err
	}

	e.takeKey()
	if e.wire == nil {
		e.wire = &wire{maxSize: b.maxSize}
	}

	b.fired.Add(1)
	if b.readers.Load() > 0 {
		e.wire.packOnce(e.Tag, e.Data) // pack before the lock is taken, so that nobody waits for the packing
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.sinks {
		s.deliver(&e)
	}

	return nil
}

// Stats holds counters since the start and the present number of subscribers.
type Stats struct {
	Fired       uint64 // events put on the bus
	Lost        uint64 // events that slow subscribers inside of the process lost, all together
	Subscribers int    // present subscribers, including socket servers
}

// Stats returns the counters.
func (b *Bus) Stats() Stats {
	b.mu.Lock()
	n := len(b.sinks)
	b.mu.Unlock()
	return Stats{Fired: b.fired.Load(), Lost: b.lost.Load(), Subscribers: n}
}

// Close ends all subscriptions. Events that are fired later are discarded.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for s := range b.sinks {
		delete(b.sinks, s)
		s.end()
	}
}

func (b *Bus) attach(s sink) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		s.end()
		return
	}
	b.sinks[s] = struct{}{}
}

func (b *Bus) detach(s sink) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.sinks[s]; ok {
		delete(b.sinks, s)
		s.end()
	}
}

// Subscription is one reader inside the process. C delivers its events; the bus closes C when the
// subscription or the bus is closed.
type Subscription struct {
	C <-chan Event

	bus     *Bus
	name    string
	c       chan Event
	filter  Filter
	own     bool    // events of other masters of the cluster are left out
	depth   int     // greatest number of waiting events of minions
	pending uint64  // events lost since the last delivery; guarded by the lock of the bus
	backlog backlog // guarded by the lock of the bus
	lost    atomic.Uint64
}

// reserve sets how many more events may wait in a subscription if no minion made them: one for each
// reserve events that the subscription's depth permits.
const reserve = 8

// Subscribe adds a reader. name appears in logs and status. depth (at least 1) bounds the number of
// waiting events, and their memory is bounded by 64 MiB; if no event waits, the queue accepts an
// event of any size. Overflow policy: when a bound is reached, this reader loses new events, which
// are counted. For events that no minion made, both bounds are an eighth higher, so that minions
// cannot displace events of the master.
func (b *Bus) Subscribe(name string, depth int, filter Filter) *Subscription {
	s := b.newSubscription(name, depth, filter)
	b.attach(s)
	return s
}

// SubscribeOwn works like Subscribe, but leaves out the events that another master of the cluster has relayed: they
// take no place in the queue, and do not count as lost.
func (b *Bus) SubscribeOwn(name string, depth int, filter Filter) *Subscription {
	s := b.newSubscription(name, depth, filter)
	s.own = true
	b.attach(s)
	return s
}

func (b *Bus) newSubscription(name string, depth int, filter Filter) *Subscription {
	depth = max(depth, 1)
	c := make(chan Event, depth+depth/reserve)
	return &Subscription{
		C:      c,
		c:      c,
		bus:    b,
		name:   name,
		filter: filter,
		depth:  depth,
	}
}

// Waiting returns the number of events in C that nobody has read yet.
func (s *Subscription) Waiting() int { return len(s.c) }

// Dropped returns the number of events lost so far.
func (s *Subscription) Dropped() uint64 { return s.lost.Load() }

// String returns the name of the subscription with its waiting and lost events.
func (s *Subscription) String() string {
	return fmt.Sprintf("%s (%d waiting, %d lost)", s.name, len(s.c), s.Dropped())
}

// Close ends the subscription and closes C. It may be called more than once.
func (s *Subscription) Close() { s.bus.detach(s) }

func (s *Subscription) deliver(e *Event) {
	if s.own && e.Origin == Peer {
		return
	}
	if s.filter != nil && !s.filter(e.Tag) {
		return
	}

	waiting := len(s.c)
	room := cap(s.c)
	maxBytes := maxWaiting + maxWaiting/reserve
	if e.Origin == Minion {
		room, maxBytes = s.depth, maxWaiting
	}

	s.backlog.release(waiting)
	weight := e.weight()
	if waiting >= room || waiting > 0 && s.backlog.bytes+weight > maxBytes {
		s.pending++
		s.lost.Add(1)
		s.bus.lost.Add(1)
		return
	}

	mine := *e
	mine.Lost = s.pending
	s.c <- mine // does not block: only deliver sends, and its check above found room in the channel
	s.backlog.add(weight)
	s.pending = 0
}

func (s *Subscription) end() { close(s.c) }
