package reactor

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/event"
	"saltern/master/internal/wheel"
	"saltern/master/redact"
	"saltern/master/runner"
	"saltern/master/value"
)

// Compiler compiles reaction files. renderer.Reactions implements it, and documents the fields of
// calls and faults.
type Compiler interface {
	Compile(ctx context.Context, tag string, data *value.Map, files []string) (calls, faults []*value.Map, err error)
	Close()
}

// Kind determines who executes a reaction: minions (local), a runner, a wheel function, or this
// host (caller).
type Kind string

const (
	local  Kind = "local"
	Runner Kind = "runner"
	Wheel  Kind = "wheel"
	caller Kind = "caller"
)

// Reaction is one function call that a reaction file asks for.
type Reaction struct {
	ID     string
	File   string
	Kind   Kind
	Fun    string
	Args   []any
	Kwargs *value.Map
	// Load holds the other fields of the job that is published to minions. It is set for the kind
	// local only.
	Load *value.Map
	// Unknown means that Salt's library does not have the function. Kwargs then holds all fields of
	// the reaction.
	Unknown bool
}

func newReaction(call *value.Map) Reaction {
	return Reaction{
		ID:      call.Str("id"),
		File:    call.Str("file"),
		Kind:    Kind(call.Str("kind")),
		Fun:     call.Str("fun"),
		Args:    call.List("arg"),
		Kwargs:  call.Map("kwarg"),
		Load:    call.Map("load"),
		Unknown: call.Bool("unknown"),
	}
}

// weight returns the approximate size of a waiting reaction in memory, in bytes.
func (x *Reaction) weight() int {
	return event.Weight(value.NewMap("args", x.Args, "kwargs", x.Kwargs))
}

// reactTo compiles the reaction files for an event, and executes their reactions.
func (r *Engine) reactTo(ctx context.Context, e event.Event) {
	files := r.localFiles(ctx, r.rules.Files(e.Tag), e.Tag)
	if len(files) == 0 {
		return
	}

	calls, faults, err := r.cfg.Compiler.Compile(ctx, e.Tag, e.Data, files)
	if err != nil {
		if ctx.Err() == nil {
			r.cfg.Log.Error("reactions cannot be read", "tag", e.Tag, "files", files, "error", err)
		}
		return
	}

	for _, f := range faults {
		r.logFault(e.Tag, f)
	}

	for _, call := range calls {
		x := newReaction(call)
		if err := r.execute(ctx, x); err != nil && ctx.Err() == nil {
			r.logFailure(x, redact.Of(x.Fun, x.Args, x.Kwargs).Error(err))
		}
	}
}

// logFault logs a fault that Compile found in a reaction file.
func (r *Engine) logFault(tag string, fault *value.Map) {
	attrs := []any{"tag", tag}
	if file := fault.Str("file"); file != "" {
		attrs = append(attrs, "path", file)
	}
	if line, _ := fault.Int("line"); line > 0 {
		attrs = append(attrs, "line", line)
	}
	log := r.cfg.Log.Warn
	if fault.Bool("error") {
		log = r.cfg.Log.Error
	}
	log("reaction: "+fault.Str("text"), attrs...)
}

func (r *Engine) logFailure(x Reaction, err error) {
	r.cfg.Log.Error(fmt.Sprintf("Reactor '%s' failed to execute %s '%s'", x.ID, x.Kind, x.Fun), "path",
		x.File, "error", err)
}

// errNotAvailable has the text that Salt's reactor logs.
var errNotAvailable = errors.New("function not available")

// execute executes a reaction, or queues it if it may take long.
func (r *Engine) execute(ctx context.Context, x Reaction) error {
	switch x.Kind {
	case local:
		return r.publish(ctx, x)
	case Wheel:
		return r.callWheel(ctx, x)
	case Runner:
		return r.callRunner(ctx, x)
	case caller:
		return r.callHere(ctx, x)
	}
	return fmt.Errorf("%q is none of local, runner, wheel, caller", x.Kind)
}

// publish starts a job on minions.
func (r *Engine) publish(ctx context.Context, x Reaction) error {
	kind, ok := x.Load.Value("tgt_type").(string)
	if !ok {
		return fmt.Errorf("tgt_type is %v, which is not text", x.Load.Value("tgt_type"))
	}

	load := r.cfg.Launch.Own(x.Fun, x.Args, x.Load.Value("tgt"), kind, "")
	load.Update(x.Load)
	found, err := r.cfg.Launch.StartOwn(ctx, load)
	if err == nil && !found {
		err = fmt.Errorf("no minion matches the target %v", x.Load.Value("tgt"))
	}
	return err
}

func (r *Engine) callWheel(ctx context.Context, x Reaction) error {
	own := wheel.Has(x.Fun)
	if x.Unknown && !own {
		return errNotAvailable
	}

	run := r.cfg.Wheel.Prepare(x.Fun, runner.Caller{User: user, All: true, Full: true, Granted: true}, x.Args, x.Kwargs)
	if own {
		_, err := run.Do(ctx)
		return err
	}

	// Queue the call, because Python takes long.
	return r.backlog.Put(ctx, x.weight(), func(ctx context.Context) {
		if _, err := run.Do(ctx); err != nil {
			r.logFailure(x, err)
		}
	})
}

func (r *Engine) callRunner(ctx context.Context, x Reaction) error {
	if x.Unknown && !r.cfg.Runs.Table.Has(x.Fun) {
		return errNotAvailable
	}
	return r.backlog.Put(ctx, x.weight(), func(ctx context.Context) {
		run := r.cfg.Runs.Announce(x.Fun, runner.Caller{User: user, All: true, Full: true, Granted: true}, x.Args, x.Kwargs)
		run.Do(ctx, func(err error) { r.logFailure(x, err) })
	})
}

// ofMaster names the runner that calls a function of an execution module on the master's host.
const ofMaster = "salt.cmd"

// callHere calls a function of an execution module on this host. No event reports the outcome. (For
// such calls Salt creates a minion with the master's configuration. Unless file_client is local,
// that minion waits for a master to accept its key.)
func (r *Engine) callHere(ctx context.Context, x Reaction) error {
	return r.backlog.Put(ctx, x.weight(), func(ctx context.Context) {
		if _, err := r.cfg.Runs.Call(ctx, ofMaster, append([]any{x.Fun}, x.Args...), x.Kwargs); err != nil {
			r.logFailure(x, redact.Of(x.Fun, x.Args, x.Kwargs).Error(err))
		}
	})
}
