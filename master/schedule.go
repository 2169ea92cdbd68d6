package master

import (
	"context"
	"fmt"
	"time"

	"saltern/master/msgpack"
)

// schedule runs the master's own scheduled runners (option schedule): those
// with seconds, minutes, hours or days. Entries with cron, when or once are
// reported as not supported.
type schedule struct {
	m       *Master
	entries []scheduled
}

type scheduled struct {
	name   string
	fun    string
	every  time.Duration
	args   []any
	kwargs *msgpack.Map
	start  bool
}

func (m *Master) newSchedule() *schedule {
	s := &schedule{m: m}
	for k, v := range m.cfg.Schedule.All() {
		name := fmt.Sprint(k)
		e, ok := v.(*msgpack.Map)
		if !ok {
			continue // enabled, splay and other settings of the whole
		}
		every := seconds(e, "seconds", time.Second) + seconds(e, "minutes", time.Minute) + seconds(e, "hours", time.Hour) + seconds(e, "days", 24*time.Hour)
		enabled, set := e.Get("enabled")
		if set && enabled == false {
			continue
		}
		if every <= 0 || e.Str("function") == "" {
			m.log.Error("scheduled job is not supported: it needs a function and seconds, minutes, hours or days", "name", name)
			continue
		}
		run, set := e.Get("run_on_start")
		s.entries = append(s.entries, scheduled{name, e.Str("function"), every, e.List("args"), e.Map("kwargs"), !set || run != false})
	}
	return s
}

func seconds(m *msgpack.Map, key string, unit time.Duration) time.Duration {
	v, _ := m.Get(key)
	switch v := v.(type) {
	case int64:
		return time.Duration(v) * unit
	case float64:
		return time.Duration(v * float64(unit))
	}
	return 0
}

// run calls each entry in its turn until ctx ends. An entry that is still at
// work is not started again.
func (s *schedule) run(ctx context.Context) {
	done := make(chan struct{})
	for _, e := range s.entries {
		go func() {
			defer func() { done <- struct{}{} }()
			s.loop(ctx, e)
		}()
	}
	for range s.entries {
		<-done
	}
}

func (s *schedule) loop(ctx context.Context, e scheduled) {
	t := time.NewTicker(e.every)
	defer t.Stop()
	for first := true; ; first = false {
		if (!first || e.start) && s.m.mayAct() {
			if _, err := s.m.runners.call(ctx, e.fun, e.args, e.kwargs); err != nil && ctx.Err() == nil {
				s.m.log.Error("scheduled runner failed", "name", e.name, "fun", e.fun, "error", err)
			}
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
