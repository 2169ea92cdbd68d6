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

// Bus passes every fired event to every subscriber. All methods may be called concurrently.
type Bus struct {
	now     func() time.Time
	maxSize int

	mu     sync.Mutex
	sinks  map[sink]struct{}
	closed bool

	fired   atomic.Uint64
	lost    atomic.Uint64
	readers atomic.Int64 // readers that want packed events
}

// sink receives each event under the lock of the bus; it must not block.
type sink interface {
	deliver(*Event)
	end()
}

// NewBus returns a bus. now returns the time for _stamp. maxSize bounds the packed data of an event
// in bytes (max_event_size); larger values inside it are replaced in the packed form. 0 means the
// default.
func NewBus(now func() time.Time, maxSize int) *Bus {
	if maxSize <= 0 {
		maxSize = defaultMaxSize
	}
	return &Bus{now: now, maxSize: maxSize, sinks: map[sink]struct{}{}}
}

// Stamp returns a time as Salt 3008 writes it into _stamp: UTC, ISO 8601 with microseconds (omitted
// when they are zero, as in Python) and "+00:00".
func Stamp(t time.Time) string {
	t = t.UTC().Truncate(time.Microsecond)
	if t.Nanosecond() == 0 {
		return t.Format("2006-01-02T15:04:05+00:00")
	}
	return t.Format("2006-01-02T15:04:05.000000+00:00")
}

// Fire puts an event on the bus and returns at once. As in Salt, it sets _stamp to the time of
// firing, in its old place if there was one. It does not change data, but data and everything in it
// belong to the subscribers from then on: the caller must not change them. Source:
// salt/utils/event.py SaltEvent.fire_event.
func (b *Bus) Fire(tag string, data *value.Map) error {
	return b.stampAndDeliver(Event{Tag: tag, Data: data, Origin: Internal})
}

// FireFor is Fire for an event of a minion, which chose the data and possibly the tag.
func (b *Bus) FireFor(minion, tag string, data *value.Map) error {
	return b.stampAndDeliver(Event{Tag: tag, Data: data, Origin: Minion, Minion: minion})
}

// FireBy is Fire for an event that somebody else made in this process; by names the origin. It is
// neither [Minion], for which there is [Bus.FireFor], nor [Peer].
func (b *Bus) FireBy(by Origin, tag string, data *value.Map) error {
	return b.stampAndDeliver(Event{Tag: tag, Data: data, Origin: by})
}

func (b *Bus) stampAndDeliver(e Event) error {
	e.Data = e.Data.Clone()
	e.Data.Set("_stamp", Stamp(b.now()))
	return b.deliver(e)
}

// Relay puts an event from elsewhere on the bus, with its origin. It keeps _stamp, and sets it to
// now if it is missing. It does not change the data.
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
		e.wire.packOnce(e.Tag, e.Data) // pack here, so that others need not wait for it
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.sinks {
		s.deliver(&e)
	}

	return nil
}

// Stats are counters since the start.
type Stats struct {
	Fired       uint64 // events put on the bus
	Lost        uint64 // events that slow subscribers in the process lost, in total
	Subscribers int    // present subscribers and socket servers
}

// Stats reads the counters.
func (b *Bus) Stats() Stats {
	b.mu.Lock()
	n := len(b.sinks)
	b.mu.Unlock()
	return Stats{Fired: b.fired.Load(), Lost: b.lost.Load(), Subscribers: n}
}

// Close ends all subscriptions. Events fired later reach nobody.
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

// Subscription is one reader inside the process. C is closed by Close and
// when the bus closes.
type Subscription struct {
	C <-chan Event

	bus     *Bus
	name    string
	c       chan Event
	filter  Filter
	depth   int     // bound of the waiting events of minions
	pending uint64  // lost since the last delivery; guarded by the lock of the bus
	backlog backlog // as well
	lost    atomic.Uint64
}

// reserve is the divisor for the extra room of a subscription that only events of the master may
// use.
const reserve = 8

// Subscribe adds a reader. name appears in logs and status. depth bounds the waiting events (at
// least 1); together they may have 64 MiB, except that a single event always has room. When a bound
// is reached, new events are lost for this reader and counted. Events that no minion made have an
// eighth more room, so that minions cannot displace those of the master.
func (b *Bus) Subscribe(name string, depth int, filter Filter) *Subscription {
	depth = max(depth, 1)
	c := make(chan Event, depth+depth/reserve)
	s := &Subscription{
		C:      c,
		c:      c,
		bus:    b,
		name:   name,
		filter: filter,
		depth:  depth,
	}
	b.attach(s)
	return s
}

// Waiting returns the number of events that nobody has taken from C yet.
func (s *Subscription) Waiting() int { return len(s.c) }

// Dropped returns the number of events lost so far.
func (s *Subscription) Dropped() uint64 { return s.lost.Load() }

// String names the subscription and its losses.
func (s *Subscription) String() string {
	return fmt.Sprintf("%s (%d waiting, %d lost)", s.name, len(s.c), s.Dropped())
}

// Close ends the subscription and closes C. It may be called more than once.
func (s *Subscription) Close() { s.bus.detach(s) }

func (s *Subscription) deliver(e *Event) {
	if s.filter != nil && !s.filter(e.Tag) {
		return
	}

	waiting := len(s.c)
	room := cap(s.c)
	bytes := maxWaiting + maxWaiting/reserve
	if e.Origin == Minion {
		room, bytes = s.depth, maxWaiting
	}

	s.backlog.release(waiting)
	weight := e.weight()
	if waiting >= room || waiting > 0 && s.backlog.bytes+weight > bytes {
		s.pending++
		s.lost.Add(1)
		s.bus.lost.Add(1)
		return
	}

	mine := *e
	mine.Lost = s.pending
	s.c <- mine // there is room, since only deliver sends
	s.backlog.add(weight)
	s.pending = 0
}

func (s *Subscription) end() { close(s.c) }
