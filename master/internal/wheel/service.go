package wheel

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/pyrunner"
	"saltern/master/redact"
	"saltern/master/runner"
	"saltern/master/value"
)

// Service calls the wheel functions of a master. Those of functionTable run here. Salt's other ones,
// key.gen_keys and key.gen_signature, and an administrator's own run in Python.
type Service struct {
	Env    *Env
	Python *pyrunner.Caller
	// Runs stores the results and fires the events.
	Runs *runner.Runs
	// Wait takes a slot for requests that wait for other work of the master. The caller must call
	// leave to free the slot. ok is false if no slot is free.
	Wait func() (leave func(), ok bool)
}

// Run is a call of a wheel function that fires events at its start and its end.
type Run struct {
	JID, Tag string
	service  *Service
	by       runner.Caller
	call     pyrunner.Call
}

// Prepare returns a Run with a new job id.
func (s *Service) Prepare(fun string, by runner.Caller, args []any, named *value.Map) *Run {
	jid := s.Runs.IDs.New()
	return &Run{
		JID:     jid,
		Tag:     event.Tag("wheel", jid),
		service: s,
		by:      by,
		call: pyrunner.Call{
			Fun:   fun,
			Args:  args,
			Named: named,
			Job:   pyrunner.Job{JID: jid, User: by.User},
			Shown: redact.Of(fun, args, named),
		},
	}
}

// Do calls the function. It fires an event before the call and another after it, and stores the
// result. data is the answer for the caller: the data of the second event, but with the untrimmed
// result. err is the error of the function. Its text contains nothing that the caller may not see.
func (r *Run) Do(ctx context.Context) (data *value.Map, err error) {
	fun, runs := r.call.Fun, r.service.Runs
	data = value.NewMap("fun", "wheel."+fun, "jid", r.JID, "tag", r.Tag, "user", r.by.User, event.EauthField,
		r.by.Eauth)
	runs.Fire(r.Tag+"/new", data)
	ret, err := r.service.callFunction(ctx, r.call)

	data = data.Clone()
	result, success := runner.Outcome("wheel", fun, ret, err)
	data.Set("return", result)
	data.Set("success", success)
	shown := data.Clone()
	// Others see only a part of the result.
	shown.Set("return", r.call.Shown.Result(conf.ShownKeys(result)))

	if Private(fun) && success {
		shown.Set("return", runner.NotForAll)
	}

	runs.KeepResult(context.WithoutCancel(ctx), r.call.Job, shown)
	runs.Fire(r.Tag+"/ret", shown)
	if err != nil {
		err = r.call.Shown.Error(err)
	}

	return data, err
}

// callFunction calls a wheel function, in Python if this package does not implement it.
func (s *Service) callFunction(ctx context.Context, c pyrunner.Call) (any, error) {
	ret, err := callNamed(ctx, s.Env, c.Fun, c.Args, c.Named)
	if !errors.Is(err, errUnknown) {
		return ret, err
	}

	leave, ok := s.Wait()
	if !ok {
		return nil, errors.New("the master is busy with the requests of others; try again later")
	}
	defer leave()

	ret, perr := s.Runs.OfPython(ctx, s.Python, c)
	var none *pyrunner.UnknownError
	switch {
	case errors.As(perr, &none):
		return nil, err
	case errors.Is(perr, pyrunner.ErrNoSalt):
		return nil, fmt.Errorf("%w in this master itself, and %w; set saltern_renderer_python", err, perr)
	}

	return ret, perr
}
