// Package engine runs engines: modules of Salt, or an administrator's own, that work beside the
// master, listen to its events and fire some. Each is a process of Salt's Python that the
// master starts, watches, starts again and ends.
//
// In a cluster an engine runs on the master that owns what only one may do, unless its entry
// has the key saltern_each_node. The process has its memory bounded, and ends with the master,
// however that ends.
//
// Source: salt/engines/__init__.py (start_engines).
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"saltern/master/value"
)

const (
	// lookEvery is how often an engine is checked against whose turn it is.
	lookEvery = time.Second
	// firstPause is the pause after an engine has ended; it doubles up to lastPause, and
	// begins anew after a run of steadyAfter.
	firstPause  = time.Second
	lastPause   = time.Minute
	steadyAfter = time.Minute
	// maxEngines bounds the processes.
	maxEngines = 64

	moduleKey   = "engine_module"
	eachNodeKey = "saltern_each_node"
)

// Spec is one entry of the option engines.
type Spec struct {
	Name      string
	Module    string     // Salt's engine_module; the name without it
	Arguments *value.Map // of its function start
	EachNode  bool       // runs on all masters of a cluster, not on one
}

// Parse reads the option engines. Entries that are none are in the error, the others are good.
func Parse(entries []any) (specs []Spec, err error) {
	for i, entry := range entries {
		spec, bad := parse(entry)
		if bad == nil && len(specs) == maxEngines {
			bad = fmt.Errorf("%d are the most", maxEngines)
		}
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("entry %d of engines: %w", i+1, bad))
			continue
		}
		specs = append(specs, spec)
	}
	return specs, err
}

func parse(entry any) (Spec, error) {
	if name, ok := entry.(string); ok && name != "" {
		return Spec{Name: name, Module: name, Arguments: value.NewMap()}, nil
	}
	named, ok := entry.(*value.Map)
	if !ok || named.Len() != 1 {
		return Spec{}, errors.New("it is neither a name nor a map of one name to its settings")
	}
	for key, settings := range named.All() {
		name, text := key.(string)
		arguments, isMap := settings.(*value.Map)
		if !text || name == "" || !isMap && settings != nil {
			break
		}
		s := Spec{Name: name, Module: name, Arguments: arguments.Clone()}
		if module := arguments.Str(moduleKey); module != "" {
			s.Module = module
		}
		s.EachNode = arguments.Bool(eachNodeKey)
		s.Arguments.Delete(moduleKey)
		s.Arguments.Delete(eachNodeKey)
		return s, nil
	}
	return Spec{}, errors.New("its settings are no map")
}

// Process is an engine that runs (pyhost.Session).
type Process interface {
	Wait(ctx context.Context) error
	Stale() bool
	Terminate()
	Close()
}

// Config of a Service.
type Config struct {
	Specs []Spec
	// Own reports whether this master does what only one of a cluster may do.
	Own  func() (term uint64, ok bool)
	Open func(ctx context.Context, s Spec) (Process, error)
	Log  *slog.Logger
}

// State is what an engine does.
type State string

// The states of engines.
const (
	Elsewhere State = "elsewhere" // another master of the cluster runs it
	Starting  State = "starting"
	Running   State = "running"
	Waiting   State = "waiting" // for its next start: it has ended
)

// Stats of one engine. Starts begin at the master's start.
type Stats struct {
	Name   string
	State  State
	Since  time.Time // of the state
	Starts uint64
	Error  string // of its last end; "": none, or it has run for a minute since
}

// Service runs the engines.
type Service struct {
	cfg     Config
	engines []*engine
}

type engine struct {
	Spec
	cfg Config

	mu    sync.Mutex
	stats Stats
}

// New makes a Service. Run starts the engines.
func New(cfg Config) *Service {
	s := &Service{cfg: cfg}
	for _, spec := range cfg.Specs {
		s.engines = append(s.engines, &engine{
			Spec:  spec,
			cfg:   cfg,
			stats: Stats{Name: spec.Name, State: Elsewhere, Since: time.Now()},
		})
	}
	return s
}

// Run runs the engines until ctx ends.
func (s *Service) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, e := range s.engines {
		all.Go(func() { e.run(ctx) })
	}
	all.Wait()
}

// Stats returns the figures of all engines.
func (s *Service) Stats() []Stats {
	var all []Stats
	for _, e := range s.engines {
		e.mu.Lock()
		all = append(all, e.stats)
		e.mu.Unlock()
	}
	return all
}

func (e *engine) run(ctx context.Context) {
	pause := firstPause
	for {
		if !e.due() {
			e.set(Elsewhere, nil)
			pause = firstPause
			if !sleep(ctx, lookEvery) {
				return
			}
			continue
		}
		e.set(Starting, nil)
		began := time.Now()
		err := e.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue // another one runs it, or it is to run with other packages
		}

		if time.Since(began) > steadyAfter {
			pause = firstPause
		}
		e.cfg.Log.Error("an engine has ended; it is started again", "engine", e.Name, "in", pause, "error", err)
		e.set(Waiting, err)
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// due reports whether this master runs the engine.
func (e *engine) due() bool {
	if e.EachNode {
		return true
	}
	_, own := e.cfg.Own()
	return own
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// once runs the engine until it ends, which is an error, or is to end here.
func (e *engine) once(ctx context.Context) error {
	process, err := e.cfg.Open(ctx, e.Spec)
	if err != nil {
		return err
	}
	defer process.Close()
	e.set(Running, nil)
	e.cfg.Log.Info("an engine runs", "engine", e.Name, "module", e.Module)

	waiting, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- process.Wait(waiting) }() // until the process ends, or stop
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-look.C:
			e.steady()
			if e.due() && !process.Stale() {
				continue
			}
		case <-ctx.Done():
		}
		process.Terminate()
		stop()
		<-ended
		return nil
	}
}

// set notes a state. The error of the last end stays until the engine is steady, or elsewhere.
func (e *engine) set(state State, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stats.State != state {
		e.stats.State = state
		e.stats.Since = time.Now()
	}
	switch {
	case err != nil:
		e.stats.Error = err.Error()
	case state == Running:
		e.stats.Starts++
	case state == Elsewhere:
		e.stats.Error = ""
	}
}

// steady forgets the error of a run of before.
func (e *engine) steady() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.stats.Since) > steadyAfter {
		e.stats.Error = ""
	}
}
