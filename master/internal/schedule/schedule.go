// Package schedule runs the master's own scheduled runners (option schedule).
package schedule

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/event"
	"saltern/master/internal/background"
	"saltern/master/redact"
	"saltern/master/value"
)

// Config of a Schedule.
type Config struct {
	Entries *value.Map // the option schedule
	// Call calls a runner.
	Call func(ctx context.Context, fun string, args []any, named *value.Map) (any, error)
	// Workers is how many runs are at work at once; 0: 10, as reactor_worker_threads.
	Workers int
	// MayAct reports whether this master does what only one of a cluster may do.
	MayAct func() bool
	Log    *slog.Logger
}

// Schedule runs entries with seconds, minutes, hours or days. Entries with
// cron, when or once are reported as not supported.
//
// Overflow policy: a run that finds all workers busy waits for one. One that is due while
// as many runs of its entry as it allows wait or are at work (maxrunning, 1;
// salt/utils/schedule.py _check_max_running) begins when one of them has ended; of
// several only one does, and the log says how many were left out.
type Schedule struct {
	cfg     Config
	entries []*entry
	backlog *background.Backlog
}

const (
	defaultWorkers = 10
	maxWaiting     = 10_000 // runs
)

type entry struct {
	name   string
	fun    string
	every  time.Duration
	args   []any
	kwargs *value.Map
	start  bool
	most   int64 // runs at once

	running atomic.Int64  // that wait or are at work
	missed  atomic.Uint64 // that were due while it was so
}

// New reads the entries.
func New(cfg Config) *Schedule {
	s := &Schedule{cfg: cfg}
	s.backlog = background.NewBacklog(background.BacklogConfig{Workers: cmp.Or(cfg.Workers, defaultWorkers), Depth: maxWaiting, Now: time.Now})
	for k, v := range cfg.Entries.All() {
		name := fmt.Sprint(k)
		e, ok := v.(*value.Map)
		if !ok {
			continue // enabled, splay and other settings of the whole
		}
		every := span(e, "seconds", time.Second) + span(e, "minutes", time.Minute) + span(e, "hours", time.Hour) + span(e, "days", 24*time.Hour)
		enabled, set := e.Get("enabled")
		if set && enabled == false {
			continue
		}
		if every <= 0 || e.Str("function") == "" {
			cfg.Log.Error("scheduled job is not supported: it needs a function and seconds, minutes, hours or days", "name", name)
			continue
		}
		run, set := e.Get("run_on_start")
		most, several := e.Int("maxrunning")
		if !several || most < 1 {
			most = 1
		}
		s.entries = append(s.entries, &entry{
			name:   name,
			fun:    e.Str("function"),
			every:  every,
			args:   e.List("args"),
			kwargs: e.Map("kwargs"),
			start:  !set || run != false,
			most:   most,
		})
	}
	return s
}

func span(m *value.Map, key string, unit time.Duration) time.Duration {
	v, _ := m.Get(key)
	switch v := v.(type) {
	case int64:
		return time.Duration(v) * unit
	case float64:
		return time.Duration(v * float64(unit))
	}
	return 0
}

// Stats returns the counters of runs.
func (s *Schedule) Stats() background.BacklogStats { return s.backlog.Stats() }

// Run calls each entry in its turn until ctx ends. What is at work then is cancelled.
func (s *Schedule) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, e := range s.entries {
		wg.Go(func() { s.loop(ctx, e) })
	}
	wg.Wait()
	if left := s.backlog.Close(); left > 0 {
		s.cfg.Log.Warn("scheduled runners that waited are lost, since the master stops", "runners", left)
	}
}

func (s *Schedule) loop(ctx context.Context, e *entry) {
	t := time.NewTicker(e.every)
	defer t.Stop()
	for first := true; ; first = false {
		if (!first || e.start) && s.cfg.MayAct() {
			s.begin(ctx, e)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// begin has an entry run as soon as there is a worker.
func (s *Schedule) begin(ctx context.Context, e *entry) {
	if e.running.Load() >= e.most {
		e.missed.Add(1)
		return
	}

	e.running.Add(1)
	err := s.backlog.Put(ctx, event.Weight(value.NewMap("args", e.args, "kwargs", e.kwargs)), func(ctx context.Context) {
		if _, err := s.cfg.Call(ctx, e.fun, e.args, e.kwargs); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("scheduled runner failed", "name", e.name, "fun", e.fun, "error", redact.Of(e.fun, e.args, e.kwargs).Error(err))
		}
		e.running.Add(-1)

		missed := e.missed.Swap(0)
		if missed > 1 {
			s.cfg.Log.Warn("scheduled runner took longer than its interval; runs were left out", "name", e.name, "fun", e.fun, "runs", missed-1)
		}
		if missed > 0 && ctx.Err() == nil && s.cfg.MayAct() {
			s.begin(ctx, e)
		}
	})
	if err != nil {
		e.running.Add(-1) // the master stops
	}
}
