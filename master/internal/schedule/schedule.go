// Package schedule runs the master's own scheduled runners (option schedule).
package schedule

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"saltern/master/value"
)

// Config of a Schedule.
type Config struct {
	Entries *value.Map // the option schedule
	// Call calls a runner.
	Call func(ctx context.Context, fun string, args []any, named *value.Map) (any, error)
	// MayAct reports whether this master does what only one of a cluster may do.
	MayAct func() bool
	Log    *slog.Logger
}

// Schedule runs entries with seconds, minutes, hours or days. Entries with
// cron, when or once are reported as not supported.
type Schedule struct {
	cfg     Config
	entries []entry
}

type entry struct {
	name   string
	fun    string
	every  time.Duration
	args   []any
	kwargs *value.Map
	start  bool
}

// New reads the entries.
func New(cfg Config) *Schedule {
	s := &Schedule{cfg: cfg}
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
		s.entries = append(s.entries, entry{name, e.Str("function"), every, e.List("args"), e.Map("kwargs"), !set || run != false})
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

// Run calls each entry in its turn until ctx ends. An entry that is still at
// work is not started again.
func (s *Schedule) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, e := range s.entries {
		wg.Go(func() { s.loop(ctx, e) })
	}
	wg.Wait()
}

func (s *Schedule) loop(ctx context.Context, e entry) {
	t := time.NewTicker(e.every)
	defer t.Stop()
	for first := true; ; first = false {
		if (!first || e.start) && s.cfg.MayAct() {
			if _, err := s.cfg.Call(ctx, e.fun, e.args, e.kwargs); err != nil && ctx.Err() == nil {
				s.cfg.Log.Error("scheduled runner failed", "name", e.name, "fun", e.fun, "error", err)
			}
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
