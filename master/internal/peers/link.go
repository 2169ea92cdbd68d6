// Package peers is this master's side of its cluster: what it tells the other
// masters, what they reach of it, and the runners cluster.*.
package peers

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"saltern/master/cluster"
	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/runner"
)

// forwardDepth bounds the events that wait to be sent to the peers.
const forwardDepth = 16384

// Link tells the peers what happens here.
type Link struct {
	Pool *cluster.Pool
	Now  func() time.Time
	Log  *slog.Logger

	mu sync.Mutex
	// kept holds the tags of returns that peers got by Keep, so that the event of the same return
	// is not sent to them again. It is cleared when it is full; an event then goes twice, which
	// peers notice.
	kept map[string]bool
}

// maxKept bounds Link.kept.
const maxKept = 16384

// noteKept notes that peers get the return of this tag by Keep, without its event.
func (l *Link) noteKept(tag string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil || len(l.kept) >= maxKept {
		l.kept = map[string]bool{}
	}
	l.kept[tag] = true
}

// takeKept reports whether noteKept noted the tag, and forgets it.
func (l *Link) takeKept(tag string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok := l.kept[tag]
	delete(l.kept, tag)
	return ok
}

// Forward sends the events of the local bus to the peers, until ctx ends.
func (l *Link) Forward(ctx context.Context, bus *event.Bus) {
	sub := bus.Subscribe("cluster", forwardDepth,
		func(tag string) bool { return tag != "key" && !strings.HasPrefix(tag, "cluster/") })
	defer sub.Close()

	for {
		select {
		case e, ok := <-sub.C:
			if !ok {
				return
			}

			if e.Lost > 0 {
				l.Log.Error("events were not forwarded to the peers: too many at once", "lost", e.Lost)
			}

			if !l.takeKept(e.Tag) && !runner.Private(e.Data.Str("fun")) {
				l.Pool.Forward(e)
			}
		case <-ctx.Done():
			return
		}
	}
}

// Keep implements jobs.Peers.
func (l *Link) Keep(ctx context.Context, r jobs.Return) error {
	tag := event.Tag("job", r.JID, "ret", r.ID)
	load := r.Load.Clone()
	load.Set("_stamp", event.Stamp(l.Now()))
	l.noteKept(tag)
	err := l.Pool.Keep(ctx, tag, load)
	if errors.Is(err, cluster.ErrNoPeer) {
		if len(l.Pool.Status().Peers) == 0 {
			return jobs.ErrOnlyMaster
		}
		return jobs.ErrNoPeer
	}
	return err
}
