package client

import (
	"context"
	"sync"
	"sync/atomic"

	"saltern/master/event"
)

// streamQueue is the number of events that wait for the gathering loop.
// Overflow policy: a feed of one stream reads no more, the master then cuts it off, and
// it connects again; of one that is shared the event is dropped. What was missed is looked
// up in the job cache either way.
const streamQueue = 8192

// stream is the events of jobs, batches and runners for one caller.
type stream struct {
	feed *feed
	wake chan struct{} // one token: events may wait, see next
	room chan struct{} // one token: there may be room for more
	gaps chan struct{} // one token: events may have been missed
	down atomic.Int64  // since when the bus is gone, in ns of Unix time; 0 when it is there

	mu      sync.Mutex
	of      []string       // prefixes of the tags that are wanted, nil: all
	waiting []event.Packed // [streamQueue] at most; it grows with need, since most jobs are small
}

func newStream(f *feed) *stream {
	return &stream{feed: f, wake: make(chan struct{}, 1), room: make(chan struct{}, 1), gaps: make(chan struct{}, 1)}
}

// listen connects the client to the event bus, and hears all of it even if it listened for
// one job before. It must be called before a job is published whose returns are wanted.
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

// setFilter leaves out all events but those whose tags begin so, from now on; none: all come.
// It gives what held before.
func (s *stream) setFilter(prefixes ...string) (before []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.of = s.of, prefixes
	return before
}

// pushEvent puts an event behind the others, if there is room.
func (s *stream) pushEvent(e event.Packed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.of) > 0 && !event.Prefix(s.of...)(e.Tag) {
		return true
	}
	if len(s.waiting) >= streamQueue {
		return false
	}
	s.waiting = append(s.waiting, e)
	signal(s.wake)
	return true
}

// nextEvent takes the event that has waited longest, if there is one. One that is not wanted
// after all, or is none, has no tag.
func (s *stream) nextEvent(wanted func(tag string) bool) (event.Event, bool) {
	p, ok := s.takeFirst()
	if !ok || !wanted(p.Tag) {
		return event.Event{}, ok
	}
	e, err := p.Event()
	if err != nil { // as if it had not come
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
		signal(s.wake) // for who takes one at a time
	}
	signal(s.room)
	return p, true
}

// signal leaves a token, unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
