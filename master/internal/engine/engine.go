// Package engine runs engines: modules of Salt or of the administrator that run next to the master,
// receive its events and fire events. Each engine runs in a separate process of Salt's Python. The
// master starts, watches, restarts and ends these processes.
//
// In a cluster an engine runs only on the master that owns cluster-wide work, unless the engine's
// entry has the key saltern_each_node. The memory of the process is bounded, and the process ends
// when the master ends.
//
// Source: salt/engines/__init__.py (start_engines).
package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"saltern/internal/pause"
	"saltern/master/internal/engine/entry"
)

const (
	// lookEvery is how often the service checks on which master an engine must run.
	lookEvery = 250 * time.Millisecond
	// firstPause is the pause after an engine has ended. The pause doubles each time, up to
	// lastPause. After the engine has run for steadyAfter, the next pause is firstPause again.
	firstPause  = time.Second
	lastPause   = time.Minute
	steadyAfter = lastPause
)

// Process is a running engine (pyhost.Session).
type Process interface {
	Wait(ctx context.Context) error
	Stale() bool
	Terminate()
	Close()
}

// Config of a Service.
type Config struct {
	Entries []entry.Entry
	// Own reports whether this master is the owner, which alone does the work that must not be done
	// twice in a cluster. term is the owner's fencing token.
	Own  func() (term uint64, ok bool)
	Open func(ctx context.Context, e entry.Entry) (Process, error)
	Log  *slog.Logger
}

// State is the state of an engine.
type State string

// The states of engines.
const (
	Elsewhere State = "elsewhere" // another master of the cluster runs the engine
	Starting  State = "starting"
	Running   State = "running"
	Waiting   State = "waiting" // the engine has ended and waits for its next start
)

// Stats are the metrics of one engine. Starts counts since the master's start.
type Stats struct {
	Name   string
	State  State
	Since  time.Time // time at which the engine entered the state
	Starts uint64
	Error  string // error of the last end; "": none, or the engine has been steady since
}

// Service runs the engines.
type Service struct {
	cfg     Config
	engines []*engine
}

type engine struct {
	entry.Entry
	cfg Config

	mu    sync.Mutex
	stats Stats
}

// New returns a Service. The caller must call Run.
func New(cfg Config) *Service {
	s := &Service{cfg: cfg}
	for _, configured := range cfg.Entries {
		s.engines = append(s.engines, &engine{
			Entry: configured,
			cfg:   cfg,
			stats: Stats{Name: configured.Name, State: Elsewhere, Since: time.Now()},
		})
	}
	return s
}

// Run starts the engines and keeps them running until ctx ends.
func (s *Service) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, e := range s.engines {
		all.Go(func() { e.runLoop(ctx) })
	}
	all.Wait()
}

// Stats returns the metrics of all engines.
func (s *Service) Stats() []Stats {
	var all []Stats
	for _, e := range s.engines {
		e.mu.Lock()
		all = append(all, e.stats)
		e.mu.Unlock()
	}
	return all
}

func (e *engine) runLoop(ctx context.Context) {
	next := firstPause
	for {
		if !e.isOurs() {
			e.setState(Elsewhere, nil)
			next = firstPause
			if pause.For(ctx, lookEvery) != nil {
				return
			}
			continue
		}

		e.setState(Starting, nil)
		began := time.Now()
		err := e.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue // another master runs the engine, or this engine restarts with other packages
		}

		if time.Since(began) > steadyAfter {
			next = firstPause
		}

		e.cfg.Log.Error("an engine has ended; it is started again", "engine", e.Name, "in", next, "error", err)
		e.setState(Waiting, err)
		if pause.For(ctx, next) != nil {
			return
		}

		next = min(2*next, lastPause)
	}
}

// isOurs reports whether this master must run the engine.
func (e *engine) isOurs() bool {
	if e.EachNode {
		return true
	}
	_, own := e.cfg.Own()
	return own
}

// runOnce runs the engine until the engine ends by itself, or until this master must end it. It
// returns an error if the engine could not be started, or if the engine ended by itself, and
// otherwise nil.
func (e *engine) runOnce(ctx context.Context) error {
	process, err := e.cfg.Open(ctx, e.Entry)
	if err != nil {
		return err
	}
	defer process.Close()

	e.setState(Running, nil)
	e.cfg.Log.Info("an engine runs", "engine", e.Name, "module", e.Module)

	waiting, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- process.Wait(waiting) }() // ends when the process has ended or waiting is done
	look := time.NewTicker(lookEvery)
	defer look.Stop()

	for {
		select {
		case err := <-ended:
			return err
		case <-look.C:
			e.clearError()
			if e.isOurs() && !process.Stale() {
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

// setState sets the state of the engine. The error of the last end is kept until the engine has run
// for steadyAfter, or runs elsewhere.
func (e *engine) setState(state State, err error) {
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

// clearError drops the error of an earlier run.
func (e *engine) clearError() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.stats.Since) > steadyAfter {
		e.stats.Error = ""
	}
}
