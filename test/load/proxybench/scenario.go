package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"saltern/test/load/proctree"
	"saltern/test/load/spread"
)

// result is what a run measured, by the names that test/bench/lb/table.py reads.
type result map[string]any

// spread notes how values are distributed, under names that begin with prefix.
func (r result) spread(prefix string, values []float64) {
	s := spread.Of(values)
	r[prefix+"_p50"] = s.Median
	r[prefix+"_p99"] = s.P99
	r[prefix+"_p999"] = s.P999
	r[prefix+"_max"] = s.Max
}

// bench is one run: a proxy that listens, with backends behind it.
type bench struct {
	target   string // where clients connect
	pid      int    // of the proxy
	backends *backends
	o        options
	hole     [2]string // commands that make a backend vanish, and bring it back
}

func (b *bench) usage() (proctree.Usage, error) { return proctree.Look(b.pid) }

// scenario is a kind of load with its number, such as lat:2000.
type scenario struct {
	name string // as it was given
	run  func(ctx context.Context, b *bench) (result, error)
}

func parseScenarios(list string) ([]scenario, error) {
	var out []scenario
	for _, name := range strings.Split(list, ",") {
		s, err := parseScenario(name)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func parseScenario(name string) (scenario, error) {
	kind, arg, _ := strings.Cut(name, ":")
	s := scenario{name: name}
	n, err := strconv.Atoi(arg)
	number := err == nil && n > 0
	switch {
	case name == "rate":
		s.run = rate
	case kind == "lat" && number:
		s.run = func(ctx context.Context, b *bench) (result, error) { return latency(ctx, b, n) }
	case kind == "bulk" && number:
		s.run = func(ctx context.Context, b *bench) (result, error) { return bulk(ctx, b, n) }
	case kind == "idle" && number:
		s.run = func(ctx context.Context, b *bench) (result, error) { return idle(ctx, b, n) }
	case kind == "fail" && (arg == "kill" || arg == "stall" || arg == "hole"):
		s.run = func(ctx context.Context, b *bench) (result, error) { return failure(ctx, b, arg) }
	default:
		return s, fmt.Errorf("%w: there is no scenario %q; there are rate, lat:N, bulk:N, idle:N, fail:kill, fail:stall and fail:hole",
			errUsage, name)
	}

	return s, nil
}

// samples collects measured values from many goroutines.
type samples struct {
	mu     sync.Mutex
	values []float64
}

func (s *samples) add(values ...float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, values...)
}

// all returns the values so far.
func (s *samples) all() []float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[:len(s.values):len(s.values)]
}

func millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// per is a share of many, 0 of none.
func per(amount float64, count int) float64 {
	if count == 0 {
		return 0
	}
	return amount / float64(count)
}

// pause waits, and reports whether ctx lasted.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
