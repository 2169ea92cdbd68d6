package reactor

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"saltern/master/event"
	"saltern/master/internal/background"
	"saltern/master/internal/launch"
	"saltern/master/internal/wheel"
	"saltern/master/redact"
	"saltern/master/runner"
	"saltern/master/value"
)

// Config of an Engine.
type Config struct {
	Rules *Rules
	Depth int // of the queues (reactor_worker_hwm); 0: 10,000
	// Threads is how many runners and wheel functions of Python are at work at once
	// (reactor_worker_threads); 0: 10.
	Threads int
	ID      string
	Bus     *event.Bus
	Fire    func(tag string, data *value.Map)
	// Render renders the file of a reaction.
	Render func(ctx context.Context, path string, vars *value.Map) (*value.Map, error)
	// Locate finds a file of the file server.
	Locate func(ctx context.Context, ref string) (path string, ok bool, err error)
	Launch *launch.Launcher
	Wheel  *wheel.Service
	Runs   *runner.Runs
	Settle func(ctx context.Context) error // waits for new readers of the event bus
	// UserKey reads the key of the master's user, who may change the rules by events.
	UserKey func() (string, error)
	Log     *slog.Logger
}

// Engine executes what events ask for (salt/utils/reactor.py). Events wait in a bounded
// queue, and runners in a second one behind it, whose tasks begin in the order of their
// events. Overflow policy: when the second queue is full the first one fills, and when
// that is full, too, the newest events are lost, counted and logged.
type Engine struct {
	cfg     Config
	rules   *Rules
	backlog *background.Backlog
	sub     *event.Subscription
}

// Salt's defaults (salt/config/__init__.py).
const (
	defaultDepth   = 10000
	defaultThreads = 10
)

// Stats are counters since the start.
type Stats struct {
	background.BacklogStats        // of runners and wheel functions of Python
	Events                  int    // that wait
	Lost                    uint64 // events that found no room
}

// Stats returns the counters.
func (r *Engine) Stats() Stats {
	return Stats{BacklogStats: r.backlog.Stats(), Events: r.sub.Waiting(), Lost: r.sub.Dropped()}
}

// NewEngine makes an Engine. It hears events from now on: the master's own start
// and the first minions are events, too.
func NewEngine(cfg Config) *Engine {
	if cfg.Depth <= 0 {
		cfg.Depth = defaultDepth
	}
	if cfg.Threads <= 0 {
		cfg.Threads = defaultThreads
	}
	r := &Engine{cfg: cfg, rules: cfg.Rules}
	r.backlog = background.NewBacklog(background.BacklogConfig{Workers: cfg.Threads, Depth: cfg.Depth, Now: time.Now})
	r.sub = cfg.Bus.Subscribe("reactor", cfg.Depth, func(tag string) bool {
		return manages(tag) || len(r.rules.Files(tag)) > 0
	})
	return r
}

// Run reacts until ctx ends. What waits then is lost, as in Salt, and the log says how
// much.
func (r *Engine) Run(ctx context.Context) {
	cut := 0
	defer func() {
		events := r.sub.Waiting() + cut
		r.sub.Close()
		if left := r.backlog.Close(); left+events > 0 {
			r.cfg.Log.Warn("reactions that waited are lost, since the master stops", "runners", left, "events", events)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-r.sub.C:
			if !ok {
				return
			}
			if ctx.Err() != nil {
				cut++
				return
			}
			if e.Lost > 0 {
				r.cfg.Log.Error("reactor is too slow; events were lost", "lost", e.Lost)
			}
			if e.Origin == event.Peer {
				continue // the master that fired it reacts; others would react again
			}
			if e.Data.Str("user") == user || e.Data.Str("__user__") == user {
				continue
			}
			if manages(e.Tag) {
				r.manage(ctx, e)
				continue
			}
			r.react(ctx, e)
			if ctx.Err() != nil { // it has not reacted, or not wholly
				cut++
				return
			}
		}
	}
}

// react renders the files of a tag and executes what they ask for.
func (r *Engine) react(ctx context.Context, e event.Event) {
	high := value.NewMap()
	for _, f := range r.rules.Files(e.Tag) {
		for _, path := range r.files(ctx, f, e.Tag) {
			v, err := r.cfg.Render(ctx, path, value.NewMap("tag", e.Tag, "data", e.Data))
			if err != nil {
				r.cfg.Log.Error("reaction cannot be rendered", "path", path, "tag", e.Tag, "error", err)
				continue
			}
			high.Update(v)
		}
	}
	todo, err := compile(high)
	if err != nil {
		r.cfg.Log.Error("reactions cannot be read", "tag", e.Tag, "error", err)
		return
	}
	for _, x := range todo {
		if err := r.execute(ctx, x); err != nil && ctx.Err() == nil {
			r.cfg.Log.Error(fmt.Sprintf("Reactor '%s' failed to execute %s '%s'", x.ID, x.Kind, x.Fun), "error", redact.Of(x.Fun, x.Args, x.Kwargs).Error(err))
		}
	}
}

// files finds the files of a rule: those on disk that match a pattern, or one that
// the file server has (salt/utils/reactor.py render_reaction).
func (r *Engine) files(ctx context.Context, ref, tag string) (found []string) {
	var err error
	if strings.HasPrefix(ref, "salt://") {
		path, ok, lerr := r.cfg.Locate(ctx, ref)
		if err = lerr; ok {
			found = []string{path}
		}
	} else {
		found, err = filepath.Glob(ref)
	}
	if err == nil && len(found) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		r.cfg.Log.Error("Can not render SLS for reaction: file is missing", "path", ref, "tag", tag, "error", err)
	}
	return found
}

func (r *Engine) execute(ctx context.Context, x Reaction) error {
	switch x.Kind {
	case local:
		arg := append([]any{}, x.Args...)
		if x.Kwargs.Len() > 0 {
			kw := x.Kwargs.Clone()
			kw.Set("__kwarg__", true)
			arg = append(arg, kw)
		}
		found, err := r.cfg.Launch.StartOwn(ctx, r.cfg.Launch.Own(x.Fun, arg, x.Target, x.TargetType, x.Ret))
		if err == nil && !found {
			err = fmt.Errorf("no minion matches the target %v", x.Target)
		}
		return err
	case Wheel:
		run := r.cfg.Wheel.Prepare(x.Fun, runner.Caller{User: user}, x.Args, x.Kwargs)
		if wheel.Has(x.Fun) {
			_, err := run.Do(ctx)
			return err
		}
		return r.backlog.Put(ctx, x.weight(), func(ctx context.Context) { // Python takes its time
			if _, err := run.Do(ctx); err != nil {
				r.cfg.Log.Error(fmt.Sprintf("Reactor '%s' failed to execute wheel '%s'", x.ID, x.Fun), "error", err)
			}
		})
	case Runner:
		return r.backlog.Put(ctx, x.weight(), func(ctx context.Context) {
			run := r.cfg.Runs.Announce(x.Fun, runner.Caller{User: user}, x.Args, x.Kwargs)
			run.Do(ctx, func(err error) {
				r.cfg.Log.Error(fmt.Sprintf("Reactor '%s' failed to execute runner '%s'", x.ID, x.Fun), "error", err)
			})
		})
	}
	return fmt.Errorf("%s reactions run on a minion and are not executed by this master; use local.%s", x.Kind, x.Fun)
}
