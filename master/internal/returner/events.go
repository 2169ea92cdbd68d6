package returner

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/pause"
	"saltern/master/event"
	"saltern/master/internal/spool"
	"saltern/master/value"
)

// eventDepth is how many events may wait to be written to the spool.
const eventDepth = 16384

// EventsConfig configures Events.
type EventsConfig struct {
	Dir       string   // directory of the spool; no other node may use it
	Bytes     int64    // bound of the spool's size, in bytes
	Returners []string // names of returners (event_return)
	// Whitelist and Blacklist are globs of tags. An empty Whitelist allows all tags.
	Whitelist, Blacklist []string
	// Queue is how many events one call passes to a returner (event_return_queue). 0 means one.
	Queue int
	// MaxWait is how long events wait for Queue events to arrive. After that time a call passes
	// fewer events (event_return_queue_max_seconds). 0 means that they wait without limit, as in
	// Salt.
	MaxWait time.Duration
	Bus     *event.Bus
	Open    func(ctx context.Context) (Worker, error)
	Log     *slog.Logger

	pause time.Duration // pause after the first failure; 0: firstPause
}

// Events passes the events on this master's bus to returners (event_return). It leaves out events
// from another master of the cluster, because that master passes them to its returners itself, as
// in Salt (salt/utils/event.py EventReturn).
type Events struct {
	cfg   EventsConfig
	sub   *event.Subscription
	spool *spool.Spool // used by Run, keeping and Close only; nil until it is open

	keeping sync.WaitGroup // what moves events from the subscription to the spool
	notKept atomic.Uint64  // events that the subscription had, and that were not written to the spool
	failing bool           // the last event could not be written; used by keeping only

	mu    sync.Mutex
	feeds []*feed // feeds of the returners; nil until the spool is open
	fault string  // why the spool cannot be opened
}

// NewEvents returns an Events that collects events from now on. The caller must call Run, and then
// Close.
func NewEvents(cfg EventsConfig) *Events {
	e := &Events{cfg: cfg}
	e.cfg.Returners = nil
	for _, name := range cfg.Returners {
		// A returner that is named twice gets each event once.
		if !slices.Contains(e.cfg.Returners, name) {
			e.cfg.Returners = append(e.cfg.Returners, name)
		}
	}
	e.sub = cfg.Bus.SubscribeOwn("event_return", eventDepth, event.ByGlobs(cfg.Whitelist, cfg.Blacklist))
	return e
}

// openSpool tries to open the spool until it succeeds. Until then events wait in the subscription
// to the bus. openSpool returns false if ctx ends first.
func (e *Events) openSpool(ctx context.Context) bool {
	for {
		err := e.tryOpen()
		if err == nil {
			return true
		}

		e.mu.Lock()
		first := e.fault == ""
		e.fault = err.Error()
		e.mu.Unlock()

		if first {
			e.cfg.Log.Error("the spool of event_return cannot be opened; it is tried again", "error", err)
		}

		if pause.For(ctx, lastPause) != nil {
			return false
		}
	}
}

func (e *Events) tryOpen() error {
	opened, err := spool.Open(spool.Config{Dir: filepath.Join(e.cfg.Dir, "events"), Bytes: e.cfg.Bytes})
	if err != nil {
		return fmt.Errorf("open the spool of event_return: %w", err)
	}

	var feeds []*feed
	for _, name := range e.cfg.Returners {
		reader, err := opened.Reader(name)
		if err != nil {
			opened.Close()
			return fmt.Errorf("open the spool of event_return: %w", err)
		}

		feeds = append(feeds, &feed{
			name:    name,
			reader:  reader,
			batch:   max(e.cfg.Queue, 1),
			maxWait: e.cfg.MaxWait,
			pause:   cmp.Or(e.cfg.pause, firstPause),
			open:    e.cfg.Open,
			log:     e.cfg.Log,
		})
	}

	if err := opened.Forget(); err != nil {
		e.cfg.Log.Warn("what returners of before have not read stays in the spool", "error", err)
	}

	e.spool = opened
	e.mu.Lock()
	defer e.mu.Unlock()

	e.feeds = feeds
	return nil
}

// Run passes events to the returners until ctx ends. Until Close, new events are still written to
// the spool, where they wait for the next start.
func (e *Events) Run(ctx context.Context) {
	// Salt's EventReturn fires this event, too.
	_ = e.cfg.Bus.Fire("salt/event_listen/start", value.NewMap())
	if !e.openSpool(ctx) {
		return
	}

	var feeds sync.WaitGroup
	for _, f := range e.feeds {
		feeds.Go(func() { f.handOver(ctx) })
	}

	e.keeping.Go(func() {
		for event := range e.sub.C {
			e.keepEvent(event)
		}
	})

	feeds.Wait()
}

// Close collects no more events, and closes the spool when all that were collected are in it. Run
// must have returned, or never have been called. A master closes the bus first, so that no event of
// its stop is missing. e may be nil.
func (e *Events) Close() {
	if e == nil {
		return
	}

	e.sub.Close()
	e.keeping.Wait()
	if e.spool == nil {
		if lost := e.sub.Waiting(); lost > 0 {
			e.cfg.Log.Error("events will not get to returners: the spool of event_return was not open", "lost", lost)
		}
		return
	}

	if err := e.spool.Close(); err != nil {
		e.cfg.Log.Warn("the spool of event_return cannot be closed", "error", err)
	}
}

// keepEvent writes an event to the spool.
func (e *Events) keepEvent(next event.Event) {
	body, err := next.Body()
	if err == nil {
		err = e.spool.Append(body)
	}

	if err != nil {
		e.notKept.Add(1)
	}

	e.logOutcome(next.Tag, err)
}

// lost returns how many events were lost before they were written to the spool.
func (e *Events) lost() uint64 { return e.notKept.Load() + e.sub.Dropped() }

// When several events in a row cannot be written, logOutcome logs the first failure and the end of
// the failures. So a full disk causes two lines, not one for each event.
func (e *Events) logOutcome(tag string, err error) {
	switch {
	case err != nil && !e.failing:
		e.cfg.Log.Error("an event will not get to returners, nor will those after it until a line says so",
			"tag", tag, "error", err)
	case err == nil && e.failing:
		e.cfg.Log.Info("events get to returners again", "lost", e.lost())
	}
	e.failing = err != nil
}

// Stats returns the metrics of each returner. Events that were not written to the spool count as
// lost for every returner. e may be nil.
func (e *Events) Stats() []Stats {
	if e == nil {
		return nil
	}

	e.mu.Lock()
	feeds, fault := e.feeds, e.fault
	e.mu.Unlock()

	var all []Stats
	if feeds == nil { // the spool is not open yet
		for _, name := range e.cfg.Returners {
			all = append(all, Stats{Returner: name, Error: fault})
		}
	}

	for _, f := range feeds {
		all = append(all, f.Stats())
	}

	for i := range all {
		all[i].Lost += e.lost()
	}

	return all
}
