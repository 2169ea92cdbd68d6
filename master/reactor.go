package master

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"

	"saltern/master/event"
	"saltern/master/msgpack"
	rules "saltern/master/reactor"
	"saltern/master/wheel"
)

// reactor executes what events ask for (salt/utils/reactor.py). Events wait
// in a bounded queue; when it overflows the newest are lost, counted and
// logged, as with a full reactor_worker_hwm.
type reactor struct {
	m     *Master
	rules atomic.Pointer[rules.Map]
	// idle is set by reactor.set_leader False: events do not react.
	idle atomic.Bool
	sub  *event.Subscription
}

func (m *Master) newReactor() *reactor {
	r, faults := rules.Parse(m.cfg.Reactor)
	for _, err := range faults {
		m.log.Error("entry of the option reactor is passed over", "error", err)
	}
	out := &reactor{m: m}
	out.rules.Store(&r)
	depth := m.cfg.ReactorWorkerHWM
	if depth <= 0 {
		depth = 10000
	}
	// Subscribed before the doors open: the master's own start and the first
	// minions are events, too.
	out.sub = m.bus.Subscribe("reactor", depth, func(tag string) bool {
		return manages(tag) || !out.idle.Load() && len(out.rules.Load().Files(tag)) > 0
	})
	return out
}

func (r *reactor) run(ctx context.Context) {
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
				r.m.log.Error("reactor is too slow; events were lost", "lost", e.Lost)
			}
			if e.Origin == event.Peer {
				continue // the master that fired it reacts; others would react again
			}
			if e.Data.Str("user") == rules.User || e.Data.Str("__user__") == rules.User {
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
func (r *reactor) react(ctx context.Context, e event.Event) {
	high := msgpack.NewMap()
	for _, f := range r.rules.Load().Files(e.Tag) {
		for _, path := range r.files(ctx, f, e.Tag) {
			v, err := r.m.renderFile(ctx, path, msgpack.NewMap("tag", e.Tag, "data", e.Data))
			if err != nil {
				r.m.log.Error("reaction cannot be rendered", "path", path, "tag", e.Tag, "error", err)
				continue
			}
			for k, v := range v.All() {
				high.Set(k, v)
			}
		}
	}
	todo, err := rules.Compile(high)
	if err != nil {
		r.m.log.Error("reactions cannot be read", "tag", e.Tag, "error", err)
		return
	}
	for _, x := range todo {
		if err := r.execute(ctx, x); err != nil {
			r.m.log.Error(fmt.Sprintf("Reactor '%s' failed to execute %s '%s'", x.ID, x.Kind, x.Fun), "error", err)
		}
	}
}

// files finds the files of a rule: those on disk that match a pattern, or one that
// the file server has (salt/utils/reactor.py render_reaction).
func (r *reactor) files(ctx context.Context, ref, tag string) []string {
	var found []string
	var err error
	if strings.HasPrefix(ref, "salt://") {
		path, ok, lerr := r.m.files.Locate(ctx, ref)
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
		r.m.log.Error("Can not render SLS for reaction: file is missing", "path", ref, "tag", tag, "error", err)
	}
	return found
}

func (r *reactor) execute(ctx context.Context, x rules.Reaction) error {
	switch x.Kind {
	case rules.Local:
		arg := append([]any{}, x.Args...)
		if x.Kwargs.Len() > 0 {
			kw := x.Kwargs.Clone()
			kw.Set("__kwarg__", true)
			arg = append(arg, kw)
		}
		j, err := r.m.newJob(ctx, msgpack.NewMap("fun", x.Fun, "arg", arg, "tgt", x.Target, "tgt_type", x.TargetType, "ret", x.Ret, "user", r.m.cfg.User))
		if err != nil {
			return err
		}
		if len(j.minions) == 0 {
			return fmt.Errorf("no minion matches the target %v", x.Target)
		}
		return r.m.start(ctx, j)
	case rules.Wheel:
		if wheel.Has(x.Fun) {
			_, err := wheel.Call(ctx, r.m.wheelEnv(), x.Fun, x.Args, x.Kwargs)
			return err
		}
		if !r.m.background.Go(func(ctx context.Context) { // Python takes its time
			if _, err := r.m.callWheel(ctx, x.Fun, x.Args, x.Kwargs); err != nil {
				r.m.log.Error(fmt.Sprintf("Reactor '%s' failed to execute wheel '%s'", x.ID, x.Fun), "error", err)
			}
		}) {
			return fmt.Errorf("too many runners are at work")
		}
		return nil
	case rules.Runner:
		jid := r.m.jids.New()
		tag := event.Tag("run", jid)
		data := msgpack.NewMap("fun", "runner."+x.Fun, "jid", jid, "user", rules.User, "fun_args", runnerArgs(x.Args, x.Kwargs))
		r.m.fire(tag+"/new", data)
		if !r.m.background.Go(func(ctx context.Context) {
			defer r.m.runners.track(data)()
			ret, err := r.m.runners.call(ctx, x.Fun, x.Args, x.Kwargs)
			done := data.Clone()
			if err != nil {
				r.m.log.Error(fmt.Sprintf("Reactor '%s' failed to execute runner '%s'", x.ID, x.Fun), "error", err)
			}
			result, success := resultOf("runner", x.Fun, ret, err)
			done.Set("return", result)
			done.Set("success", success)
			r.m.keepRun(ctx, jid, done)
			r.m.fire(tag+"/ret", shownRun(x.Fun, done))
		}) {
			return fmt.Errorf("too many runners are at work")
		}
		return nil
	}
	return fmt.Errorf("%s reactions run on a minion and are not executed by this master; use local.%s", x.Kind, x.Fun)
}
