package client

import (
	"context"
	"sync"
	"time"

	"saltern/internal/pause"
	"saltern/master/event"
)

// linger is how long a shared feed remains connected after its last stream was removed.
const linger = 2 * time.Second

// feed reads the events of jobs, batches and runners from the master's bus in a separate goroutine,
// the pump. The pump passes them to one stream or, if it is shared, to all streams of a [Shared].
type feed struct {
	dir    string
	shared bool
	joins  sync.Mutex // held by addStream and hangUpIdle, so that only one of the two connects or closes at a time
	pump   sync.WaitGroup

	mu      sync.Mutex
	down    bool // the connection to the bus is lost
	streams map[*stream]struct{}
	cancel  context.CancelFunc // ends pumpEvents; nil while pumpEvents does not run
	idle    *time.Timer        // fires when a shared feed has had no stream for linger
}

// wanted reports whether a tag belongs to an event about jobs, batches, runners or outdated files.
var wanted = event.Prefix("salt/job/", "salt/batch/", "salt/run/", syndicSpace, event.TagOldFiles)

// addStream adds a stream, which gets all events that are fired from now on.
func (f *feed) addStream(ctx context.Context) (*stream, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	f.joins.Lock()
	defer f.joins.Unlock()

	s := newStream(f)
	for {
		if f.addIfConnected(s) {
			return s, nil
		}

		l, err := event.DialPub(ctx, f.dir)
		if err != nil {
			return nil, errEvents(err)
		}
		if f.startPump(s, l) {
			return s, nil
		}

		l.Close() // the pump runs already and will connect
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return nil, errEvents(err)
		}
	}
}

// addIfConnected adds a stream if the pump runs and is connected, and reports whether it has added
// the stream.
func (f *feed) addIfConnected(s *stream) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancel == nil || f.down {
		return false
	}
	f.streams[s] = struct{}{}
	return true
}

// startPump starts the pump with a first stream, and returns false if the pump runs already.
func (f *feed) startPump(s *stream, l *event.Listener) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancel != nil {
		return false
	}
	f.streams = map[*stream]struct{}{s: {}}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.down = false
	f.pump.Go(func() { f.pumpEvents(ctx, l) })
	return true
}

func (f *feed) removeStream(s *stream) {
	f.mu.Lock()
	delete(f.streams, s)
	last := len(f.streams) == 0 && f.cancel != nil
	if last && f.shared {
		if f.idle == nil {
			f.idle = time.AfterFunc(linger, f.hangUpIdle)
		}
		f.idle.Reset(linger)
	}
	f.mu.Unlock()
	if last && !f.shared {
		f.close()
	}
}

// hangUpIdle closes the connection to the bus if no stream is left.
func (f *feed) hangUpIdle() {
	f.joins.Lock()
	defer f.joins.Unlock()
	f.mu.Lock()
	empty := len(f.streams) == 0
	f.mu.Unlock()
	if empty {
		f.close()
	}
}

// close closes the connection to the bus and waits for the pump to end. The caller has removed all
// streams.
func (f *feed) close() {
	f.mu.Lock()
	if f.cancel != nil {
		f.cancel()
	}
	f.mu.Unlock()
	f.pump.Wait()
	f.mu.Lock()
	f.cancel = nil
	f.mu.Unlock()
}

// pumpEvents reads events until ctx ends, and connects again when the master closes the connection.
func (f *feed) pumpEvents(ctx context.Context, l *event.Listener) {
	for ctx.Err() == nil {
		f.readEvents(ctx, l)
		f.markLost()
		l.Close()
		for l = nil; l == nil; {
			if pause.For(ctx, 200*time.Millisecond) != nil {
				return
			}
			l, _ = event.DialPub(ctx, f.dir)
		}

		f.markBack()
	}

	if l != nil {
		l.Close()
	}
}

// markLost records in all streams that the connection is lost.
func (f *feed) markLost() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now().UnixNano()
	f.down = true
	for s := range f.streams {
		s.down.CompareAndSwap(0, now)
	}
}

// markBack records in all streams that the connection is restored and that they may have missed
// events.
func (f *feed) markBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = false
	for s := range f.streams {
		signal(s.gaps)
		s.down.Store(0)
	}
}

// readEvents passes events to the streams until the connection ends.
func (f *feed) readEvents(ctx context.Context, l *event.Listener) {
	for {
		e, err := l.NextPacked(ctx)
		if err != nil {
			return
		}
		if !wanted(e.Tag) {
			continue
		}

		for full := f.handOut(e); full != nil; full = f.handOut(e) {
			select {
			case <-full.room:
			case <-ctx.Done():
				return
			}
		}
	}
}

// handOut passes an event to all streams. If the feed is not shared and its stream has no room,
// handOut returns that stream, and the caller must call handOut again with the same event.
func (f *feed) handOut(e event.Packed) (full *stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams {
		if s.pushEvent(e) {
			continue
		}
		if !f.shared {
			return s
		}
		signal(s.gaps)
	}
	return nil
}
