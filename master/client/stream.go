package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/event"
	"saltern/pause"
)

// streamQueue is the number of events that wait for the gathering loop.
// Overflow policy: reading stops, the master then cuts us off, and the stream
// connects again; what was missed is looked up in the job cache.
const streamQueue = 8192

// stream reads the events of jobs, batches and runners from the master's bus in a goroutine of
// its own, until it is closed.
type stream struct {
	wake   chan struct{} // one token: events may wait, see next
	room   chan struct{} // one token: there may be room for more
	gaps   chan struct{} // one token: events may have been missed
	down   atomic.Int64  // since when the bus is gone, in ns of Unix time; 0 when it is there
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	waiting []event.Event // [streamQueue] at most; it grows with need, since most jobs are small
}

// listen connects the client to the event bus. It must be called before a
// job is published whose returns are wanted.
func (c *Client) listen(ctx context.Context) error {
	if c.events != nil {
		return nil
	}
	dialCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	l, err := event.DialPub(dialCtx, c.cfg.SockDir)
	if err != nil {
		return &Error{Kind: Unavailable, Message: fmt.Sprintf("cannot listen to the master's events: %v", err)}
	}
	s := &stream{wake: make(chan struct{}, 1), room: make(chan struct{}, 1), gaps: make(chan struct{}, 1)}
	runCtx, stop := context.WithCancel(context.Background())
	s.cancel = stop
	s.done.Go(func() { s.run(runCtx, l, c.cfg.SockDir) })
	c.events = s
	return nil
}

func (s *stream) close() {
	s.cancel()
	s.done.Wait()
}

func (s *stream) run(ctx context.Context, l *event.Listener, sockDir string) {
	for ctx.Err() == nil {
		s.pump(ctx, l)
		s.down.Store(time.Now().UnixNano())
		l.Close()
		for l = nil; l == nil; {
			if pause.For(ctx, 200*time.Millisecond) != nil {
				return
			}
			l, _ = event.DialPub(ctx, sockDir)
		}
		signal(s.gaps)
		s.down.Store(0)
	}
	if l != nil {
		l.Close()
	}
}

// pump reads until the connection ends.
func (s *stream) pump(ctx context.Context, l *event.Listener) {
	for {
		e, err := l.Next(ctx)
		if err != nil {
			return
		}
		if !wanted(e.Tag) {
			continue
		}
		for !s.add(e) {
			select {
			case <-s.room:
			case <-ctx.Done():
				return
			}
		}
	}
}

// add puts an event behind the others, if there is room.
func (s *stream) add(e event.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= streamQueue {
		return false
	}
	s.waiting = append(s.waiting, e)
	signal(s.wake)
	return true
}

// next takes the event that has waited longest, if there is one.
func (s *stream) next() (e event.Event, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return e, false
	}
	e, s.waiting[0] = s.waiting[0], event.Event{}
	if s.waiting = s.waiting[1:]; len(s.waiting) > 0 {
		signal(s.wake) // for who takes one at a time
	}
	signal(s.room)
	return e, true
}

// signal leaves a token, unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wanted are the events of jobs, batches and runners.
var wanted = event.Prefix("salt/job/", "salt/batch/", "salt/run/")
