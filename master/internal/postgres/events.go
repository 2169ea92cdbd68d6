package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/pause"
	"saltern/internal/room"
	"saltern/master/event"
	"saltern/master/internal/postgres/settings"
	"saltern/master/internal/spool"
)

// eventDepth is how many events may wait to be written to the spool.
const eventDepth = 16384

// EventsConfig configures Events. All fields are required.
type EventsConfig struct {
	Settings *settings.Settings
	Dir      string // of the spool; no other node may use it
	Master   string // id of the master, for the column master_id
	Bus      *event.Bus
	Wants    event.Filter // by tag
	Now      func() time.Time
	Log      *slog.Logger
}

// Events writes the events of this master into the table salt_events. It leaves out events from another master of the
// cluster, because that master writes them, as in Salt (salt/utils/event.py EventReturn).
//
// Events wait in a subscription of the bus, then in a spool of their own, and have a connection of their own, so that
// they hold up neither the bus nor returns. Overflow policy: the newest events are dropped before the spool, the oldest
// ones in it, and both are counted.
type Events struct {
	cfg     EventsConfig
	sub     *event.Subscription
	writer  string
	keeping sync.WaitGroup // what moves events from the subscription to the spool

	unkept atomic.Uint64 // events that the subscription had, and that did not get into the spool

	// The fields below are used by keeping only.
	number  uint64      // of the last event that this writer wrote
	failing bool        // the last event did not get into the spool
	space   *room.Watch // of the spool's disk; nil: it was full when it was last looked at
	looked  time.Time   // when the disk was full

	mu    sync.Mutex
	feed  *feed  // nil: the spool is not open yet
	fault string // why the spool cannot be opened
}

// NewEvents returns an Events that collects events from now on. The caller must call Run, and then Close.
func NewEvents(cfg EventsConfig) *Events {
	return &Events{
		cfg:    cfg,
		sub:    cfg.Bus.SubscribeOwn("PostgreSQL", eventDepth, cfg.Wants),
		writer: rand.Text(),
	}
}

// Run writes events to the database until ctx ends. Until Close, new events still get into the spool, where they wait
// for the next start.
func (e *Events) Run(ctx context.Context) {
	f := e.open(ctx)
	if f == nil {
		return
	}

	e.keeping.Go(func() {
		for next := range e.sub.C {
			e.keep(f.lane, next)
		}
	})
	f.run(ctx)
}

// Close collects no more events, and closes the spool when it has all that were collected. Run must have returned, or
// never have been called. A master closes the bus first, so that no event of its stop is missing. e may be nil.
func (e *Events) Close() {
	if e == nil {
		return
	}
	e.sub.Close()
	e.keeping.Wait()
	e.mu.Lock()
	f := e.feed
	e.mu.Unlock()

	if f == nil {
		if lost := e.sub.Waiting(); lost > 0 {
			e.cfg.Log.Error("events will not get to PostgreSQL: their spool was not open", "path", e.cfg.Dir, "lost", lost)
		}
		return
	}
	if err := f.lane.spool.Close(); err != nil {
		e.cfg.Log.Warn("the spool of events for PostgreSQL cannot be closed", "path", f.lane.dir, "error", err)
	}
}

// open opens the spool. It tries again until it succeeds, and returns nil if ctx ends first.
func (e *Events) open(ctx context.Context) *feed {
	for {
		l, err := openLane(e.cfg.Dir, int64(e.cfg.Settings.EventsSpool)<<20, false)
		if err == nil {
			return e.newFeed(l)
		}

		e.mu.Lock()
		first := e.fault == ""
		e.fault = err.Error()
		e.mu.Unlock()
		if first {
			e.cfg.Log.Error("events do not get to PostgreSQL until their spool can be opened; it is tried again",
				"path", e.cfg.Dir, "error", err)
		}
		if pause.For(ctx, lastPause) != nil {
			return nil
		}
	}
}

func (e *Events) newFeed(l *lane) *feed {
	c := e.cfg
	f := newFeed(l, c.Settings, c.Master, c.Now, c.Log)
	f.db.events = true
	e.mu.Lock()
	defer e.mu.Unlock()
	e.feed = f
	e.fault = ""
	return f
}

// keep writes an event to the spool.
func (e *Events) keep(l *lane, next event.Event) {
	err := e.write(l, next)
	if err != nil {
		e.unkept.Add(1)
	}
	if errors.Is(err, spool.ErrTooLarge) {
		e.cfg.Log.Error("an event is too large for the spool and will not get to PostgreSQL: saltern_postgres: events_spool",
			"tag", next.Tag, "error", err)
		return
	}
	e.logOutcome(next.Tag, err)
}

func (e *Events) write(l *lane, next event.Event) error {
	data, err := next.PackedData()
	if err != nil {
		return err
	}
	now := e.cfg.Now()
	r := record{
		kind:    kindEvent,
		time:    now,
		added:   now,
		writer:  e.writer,
		number:  e.number + 1,
		tag:     next.Tag,
		master:  e.cfg.Master,
		content: data,
	}
	packed := r.pack()
	if err := e.checkRoom(l.dir, len(packed)); err != nil {
		return err
	}

	e.number++ // a write that fails may have left the record in the spool
	if _, err := l.spool.Write(packed); err != nil {
		return fmt.Errorf("keep an event for PostgreSQL: %w", err)
	}
	return nil
}

// checkRoom returns an error if the disk is nearly full, so that events leave the rest of it to returns.
func (e *Events) checkRoom(dir string, bytes int) (err error) {
	if e.space != nil {
		err = e.space.Bytes(bytes)
	} else {
		if since := time.Since(e.looked); since >= 0 && since < time.Second {
			return room.ErrFull
		}
		e.space, err = room.Guard(dir, room.Usual())
	}
	if err != nil {
		e.space = nil
		e.looked = time.Now()
	}
	return err
}

// logOutcome logs the first failure and the end of the failures when several events in a row cannot be kept.
func (e *Events) logOutcome(tag string, err error) {
	switch {
	case err != nil && !e.failing:
		e.cfg.Log.Error("an event will not get to PostgreSQL, nor will those after it until a line says so",
			"tag", tag, "error", err)
	case err == nil && e.failing:
		e.cfg.Log.Info("events get to PostgreSQL again", "lost", e.unkept.Load()+e.sub.Dropped())
	}
	e.failing = err != nil
}

// Stats returns the figures: Written counts events, Known those that came again after a failure. e may be nil.
func (e *Events) Stats() (out Stats) {
	if e == nil {
		return out
	}
	e.mu.Lock()
	f := e.feed
	out.Error = e.fault
	e.mu.Unlock()
	if f != nil {
		f.addStats(&out)
	}
	out.Unkept = e.unkept.Load() + e.sub.Dropped()
	return out
}

// Fault returns what an administrator should look at by the figures of now, or nil.
func (e *Events) Fault(st Stats) error {
	err := faultOf(st, e.cfg.Now(), "saltern_postgres: events_spool")
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	return nil
}
