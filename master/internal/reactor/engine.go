package reactor

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"

	"saltern/master/event"
	"saltern/master/internal/background"
	"saltern/master/internal/launch"
	"saltern/master/internal/wheel"
	"saltern/master/runner"
	"saltern/master/value"
)

// Config of an Engine.
type Config struct {
	Rules []any // the option reactor
	Depth int   // of the queue (reactor_worker_hwm); 0: 10,000
	ID    string
	Bus   *event.Bus
	Fire  func(tag string, data *value.Map)
	// Render renders the file of a reaction.
	Render func(ctx context.Context, path string, vars *value.Map) (*value.Map, error)
	// Locate finds a file of the file server.
	Locate     func(ctx context.Context, ref string) (path string, ok bool, err error)
	Launch     *launch.Launcher
	Wheel      *wheel.Service
	Runs       *runner.Runs
	Background *background.Pool
	// UserKey reads the key of the master's user, who may change the rules.
	UserKey func() (string, error)
	Log     *slog.Logger
}

// Engine executes what events ask for (salt/utils/reactor.py). Events wait in a
// bounded queue; when it overflows the newest are lost, counted and logged, as with
// a full reactor_worker_hwm.
type Engine struct {
	cfg   Config
	rules atomic.Pointer[Map]
	// idle is set by reactor.set_leader False: events do not react.
	idle atomic.Bool
	sub  *event.Subscription
}

// NewEngine makes an Engine. It hears events from now on: the master's own start
// and the first minions are events, too.
func NewEngine(cfg Config) *Engine {
	rules, faults := Parse(cfg.Rules)
	for _, err := range faults {
		cfg.Log.Error("entry of the option reactor is passed over", "error", err)
	}
	if cfg.Depth <= 0 {
		cfg.Depth = 10000
	}
	r := &Engine{cfg: cfg}
	r.rules.Store(&rules)
	r.sub = cfg.Bus.Subscribe("reactor", cfg.Depth, func(tag string) bool {
		return manages(tag) || !r.idle.Load() && len(r.rules.Load().Files(tag)) > 0
	})
	return r
}

// Rules lists the rules in force, in the form of the option.
func (r *Engine) Rules() []any { return r.rules.Load().All() }

// Run reacts until ctx ends.
func (r *Engine) Run(ctx context.Context) {
	defer r.sub.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-r.sub.C:
			if !ok {
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
				r.manage(e)
				continue
			}
			if !r.idle.Load() {
				r.react(ctx, e)
			}
		}
	}
}

// react renders the files of a tag and executes what they ask for.
func (r *Engine) react(ctx context.Context, e event.Event) {
	high := value.NewMap()
	for _, f := range r.rules.Load().Files(e.Tag) {
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
		if err := r.execute(ctx, x); err != nil {
			r.cfg.Log.Error(fmt.Sprintf("Reactor '%s' failed to execute %s '%s'", x.ID, x.Kind, x.Fun), "error", err)
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
		if wheel.Has(x.Fun) {
			_, err := r.cfg.Wheel.Call(ctx, x.Fun, x.Args, x.Kwargs)
			return err
		}
		if !r.cfg.Background.Go(func(ctx context.Context) { // Python takes its time
			if _, err := r.cfg.Wheel.Call(ctx, x.Fun, x.Args, x.Kwargs); err != nil {
				r.cfg.Log.Error(fmt.Sprintf("Reactor '%s' failed to execute wheel '%s'", x.ID, x.Fun), "error", err)
			}
		}) {
			return fmt.Errorf("too many runners are at work")
		}
		return nil
	case Runner:
		run := r.cfg.Runs.Announce(x.Fun, user, x.Args, x.Kwargs)
		if !r.cfg.Background.Go(func(ctx context.Context) {
			run.Do(ctx, func(err error) {
				r.cfg.Log.Error(fmt.Sprintf("Reactor '%s' failed to execute runner '%s'", x.ID, x.Fun), "error", err)
			})
		}) {
			return fmt.Errorf("too many runners are at work")
		}
		return nil
	}
	return fmt.Errorf("%s reactions run on a minion and are not executed by this master; use local.%s", x.Kind, x.Fun)
}
