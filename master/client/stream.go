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
	queue  chan event.Event
	gaps   chan struct{} // one token: events may have been missed
	down   atomic.Int64  // since when the bus is gone, in ns of Unix time; 0 when it is there
	cancel context.CancelFunc
	done   sync.WaitGroup
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
	s := &stream{queue: make(chan event.Event, streamQueue), gaps: make(chan struct{}, 1)}
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
		select {
		case s.gaps <- struct{}{}:
		default:
		}
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
		select {
		case s.queue <- e:
		case <-ctx.Done():
			return
		}
	}
}

// wanted are the events of jobs, batches and runners.
var wanted = event.Prefix("salt/job/", "salt/batch/", "salt/run/")
