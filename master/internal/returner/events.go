package returner

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/event"
	"saltern/master/internal/spool"
	"saltern/master/pattern"
	"saltern/master/value"
)

// eventDepth bounds the events that wait to be written to the spool.
const eventDepth = 16384

// EventsConfig of Events.
type EventsConfig struct {
	Dir       string   // of the spool, of this node alone
	Bytes     int64    // bound of the spool
	Returners []string // event_return
	// Whitelist and Blacklist are globs of tags. No whitelist: all.
	Whitelist, Blacklist []string
	// Queue is how many events a call gets (event_return_queue); 0: one.
	Queue int
	// MaxWait is how long fewer wait (event_return_queue_max_seconds); 0: for ever, as in Salt.
	MaxWait time.Duration
	Bus     *event.Bus
	Open    func(ctx context.Context) (Worker, error)
	Log     *slog.Logger

	pause time.Duration // after the first failure; 0: firstPause
}

// Events hands the events of this master's bus to returners (event_return). Those that came
// from another master of the cluster are that master's to return, as in Salt (salt/utils/
// event.py EventReturn).
type Events struct {
	cfg   EventsConfig
	spool *spool.Spool
	sub   *event.Subscription
	feeds []*feed

	unkept atomic.Uint64 // events that did not get to the spool
}

// OpenEvents begins to keep events. Run must be called.
func OpenEvents(cfg EventsConfig) (*Events, error) {
	e := &Events{cfg: cfg}
	var err error
	if e.spool, err = spool.Open(spool.Config{Dir: filepath.Join(cfg.Dir, "events"), Bytes: cfg.Bytes}); err != nil {
		return nil, fmt.Errorf("open the spool of event_return: %w", err)
	}
	for _, name := range cfg.Returners {
		reader, err := e.spool.Reader(name)
		if err != nil {
			e.spool.Close()
			return nil, fmt.Errorf("open the spool of event_return: %w", err)
		}
		e.feeds = append(e.feeds, &feed{
			name:     name,
			reader:   reader,
			batch:    max(cfg.Queue, 1),
			patience: cfg.MaxWait,
			pause:    cmp.Or(cfg.pause, firstPause),
			open:     cfg.Open,
			log:      cfg.Log,
		})
	}
	if err := e.spool.Forget(); err != nil {
		cfg.Log.Warn("what returners of before have not read stays in the spool", "error", err)
	}
	e.sub = cfg.Bus.Subscribe("event_return", eventDepth, e.wants)
	return e, nil
}

func (e *Events) wants(tag string) bool {
	allowed := len(e.cfg.Whitelist) == 0
	for _, glob := range e.cfg.Whitelist {
		allowed = allowed || pattern.Glob(glob, tag)
	}
	for _, glob := range e.cfg.Blacklist {
		allowed = allowed && !pattern.Glob(glob, tag)
	}
	return allowed
}

// Run hands events over until ctx ends. What was fired until then is kept for the next start.
func (e *Events) Run(ctx context.Context) {
	var feeds sync.WaitGroup
	for _, f := range e.feeds {
		feeds.Go(func() { f.run(ctx) })
	}
	_ = e.cfg.Bus.Fire("salt/event_listen/start", value.NewMap()) // as EventReturn does

	stop := context.AfterFunc(ctx, e.sub.Close)
	defer stop()
	for event := range e.sub.C { // what waits in it comes after Close, too
		e.keep(event)
	}
	feeds.Wait()
	if err := e.spool.Close(); err != nil {
		e.cfg.Log.Warn("the spool of event_return cannot be closed", "error", err)
	}
}

// keep writes an event to the spool.
func (e *Events) keep(next event.Event) {
	lost := next.Lost
	if next.Origin != event.Peer {
		body, err := next.Body()
		if err == nil {
			err = e.spool.Append(body)
		}
		if err != nil {
			lost++
			e.cfg.Log.Error("an event will not get to returners", "tag", next.Tag, "error", err)
		}
	}
	if lost > 0 {
		e.unkept.Add(lost)
	}
}

// Stats returns the figures of the returners. Events that did not get to the spool are lost to
// all of them. A nil Events has none.
func (e *Events) Stats() []Stats {
	if e == nil {
		return nil
	}
	var all []Stats
	for _, f := range e.feeds {
		s := f.Stats()
		s.Lost += e.unkept.Load()
		all = append(all, s)
	}
	return all
}
