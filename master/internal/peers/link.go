// Package peers connects this master to its cluster. It sends data to the other masters, handles
// the data that they send, and provides the runners cluster.*.
package peers

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"saltern/master/cluster"
	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/runner"
)

// forwardDepth bounds the number of events that wait to be sent to the peers.
const forwardDepth = 16384

// Link sends this master's events and returns to the peers.
type Link struct {
	Pool *cluster.Pool
	Log  *slog.Logger

	mu sync.Mutex
	// kept holds the tags of returns that were sent to the peers by Keep, so that the event of the
	// same return is not sent as well. A full map is cleared. After that the event of a return may
	// reach the peers although they have the return; they detect that.
	kept map[string]bool
}

// maxKept bounds Link.kept.
const maxKept = 16384

// noteKept records that Keep sends the return with this tag to the peers, so that its event is not
// sent.
func (l *Link) noteKept(tag string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil || len(l.kept) >= maxKept {
		l.kept = map[string]bool{}
	}
	l.kept[tag] = true
}

// takeKept reports whether noteKept has recorded the tag, and removes the tag.
func (l *Link) takeKept(tag string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok := l.kept[tag]
	delete(l.kept, tag)
	return ok
}

// Forward sends the events on this master's bus to the peers until ctx ends, and then those that
// still wait.
func (l *Link) Forward(ctx context.Context, bus *event.Bus) {
	sub := bus.Subscribe("cluster", forwardDepth,
		func(tag string) bool { return tag != "key" && !strings.HasPrefix(tag, "cluster/") })
	defer sub.Close()

	eachEvent(ctx, sub, l.forwardOne)

	for range sub.Waiting() {
		l.forwardOne(<-sub.C)
	}
}

// forwardOne sends an event to the peers if they may have it and do not have it yet.
func (l *Link) forwardOne(e event.Event) {
	if e.Lost > 0 {
		l.Log.Error("events were not forwarded to the peers: too many at once", "lost", e.Lost)
	}
	if !l.takeKept(e.Tag) && !runner.Private(e.Data.Str("fun")) {
		l.Pool.Forward(e)
	}
}

// eachEvent calls handle with each event of a subscription, until ctx or the subscription ends.
func eachEvent(ctx context.Context, sub *event.Subscription, handle func(event.Event)) {
	for {
		select {
		case e, ok := <-sub.C:
			if !ok {
				return
			}
			handle(e)
		case <-ctx.Done():
			return
		}
	}
}

// Keep implements jobs.Peers.
func (l *Link) Keep(ctx context.Context, r jobs.Return) error {
	tag := event.Tag("job", r.JID, "ret", r.ID)
	load := r.Load.Clone()
	load.Set("_stamp", event.Stamp(r.Time))
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

// Copy implements jobs.Peers.
func (l *Link) Copy(r jobs.Return) {
	load := r.Load.Clone()
	load.Set("_stamp", event.Stamp(r.Time))
	if err := l.Pool.Copy(load); err != nil {
		l.Log.Warn("the peers get the result of a function later, from the shared folder", "jid", r.JID, "error", err)
	}
}
