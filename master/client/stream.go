package client

import (
	"context"
	"sync"
	"sync/atomic"

	"saltern/master/event"
)

// streamQueue is the number of events that may wait for the gathering loop. Overflow policy: a feed
// with one stream stops reading; the master then closes the connection, and the feed reconnects. A
// shared feed drops the event. In both cases the gathering loop looks in the job cache for the
// returns that it missed.
const streamQueue = 8192

// stream delivers events about jobs, batches and runners to one client.
type stream struct {
	feed *feed
	wake chan struct{} // has an element when events may wait, see nextEvent
	room chan struct{} // has an element when there may be room for more events
	gaps chan struct{} // has an element when the stream may have missed events
	down atomic.Int64  // when the connection to the bus was lost, in Unix nanoseconds; 0 while connected

	mu       sync.Mutex
	prefixes []string       // prefixes of the wanted tags; nil: all
	waiting  []event.Packed // at most streamQueue; it grows on demand, since most jobs are small
}

func newStream(f *feed) *stream {
	return &stream{feed: f, wake: make(chan struct{}, 1), room: make(chan struct{}, 1), gaps: make(chan struct{}, 1)}
}

// listen connects the client to the event bus and removes the filter of an earlier job. A caller
// that wants the returns of a job must call listen before it publishes the job.
func (c *Client) listen(ctx context.Context) error {
	if c.events != nil {
		c.events.setFilter()
		return nil
	}

	f := &feed{dir: c.cfg.SockDir}
	if c.cfg.Shared != nil {
		f = c.cfg.Shared.feed
	}

	s, err := f.addStream(ctx)
	if err != nil {
		return err
	}

	c.events = s
	return nil
}

func (s *stream) close() { s.feed.removeStream(s) }

// setFilter restricts the stream, from now on, to events whose tags have one of the prefixes.
// Without prefixes the stream gets all events. setFilter returns the former prefixes.
func (s *stream) setFilter(prefixes ...string) (before []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.prefixes = s.prefixes, prefixes
	return before
}

// pushEvent appends an event unless the stream's filter rejects it. It returns false when the queue
// has no room for the event, otherwise true.
func (s *stream) pushEvent(e event.Packed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.prefixes) > 0 && !event.Prefix(s.prefixes...)(e.Tag) {
		return true
	}
	if len(s.waiting) >= streamQueue {
		return false
	}
	s.waiting = append(s.waiting, e)
	signal(s.wake)
	return true
}

// nextEvent removes and returns the oldest event; ok is false when no event waits. If the event is
// not wanted or cannot be decoded, nextEvent returns an event without a tag instead.
func (s *stream) nextEvent(wanted func(tag string) bool) (event.Event, bool) {
	p, ok := s.takeFirst()
	if !ok || !wanted(p.Tag) {
		return event.Event{}, ok
	}
	e, err := p.Event()
	if err != nil { // the event cannot be decoded: skip it
		signal(s.gaps)
		return event.Event{}, true
	}
	return e, true
}

func (s *stream) takeFirst() (p event.Packed, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return p, false
	}
	p, s.waiting[0] = s.waiting[0], event.Packed{}
	if s.waiting = s.waiting[1:]; len(s.waiting) > 0 {
		signal(s.wake) // wake the reader once more, because it may take one event at a time
	}
	signal(s.room)
	return p, true
}

// signal puts an element into a channel of capacity 1 unless the channel holds one already.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
