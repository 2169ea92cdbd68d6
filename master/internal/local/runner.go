package local

import (
	"context"
	"errors"
	"strings"
	"time"

	"saltern/internal/audit"
	"saltern/master/client"
	"saltern/master/event"
	"saltern/master/internal/acl"
	"saltern/master/internal/background"
	"saltern/master/internal/eauth"
	"saltern/master/internal/request"
	"saltern/master/internal/source"
	"saltern/master/runner"
	"saltern/master/value"
)

// Bounds of the runners whose lists are in the answer.
const (
	maxLists        = 16   // lists at work at once
	maxWaitingLists = 1024 // requests that wait for one of them
	// listFor is the longest time that a list waits and works.
	listFor = 5 * time.Minute
	// maxListAnswer bounds a list in bytes. Clients take answers of 64 MiB.
	maxListAnswer = 48 << 20
)

// runnerCall is a call of a runner by an admitted caller.
type runnerCall struct {
	*Service
	from   origin
	caller eauth.Caller
	fun    string
	args   []any
	named  *value.Map
	// answered means that the caller reads the result from the answer, so nobody looks for it elsewhere.
	answered bool
}

// onRunner starts a runner and answers at once. The result of the runner follows as an event
// (salt/client/mixins.py asynchronous). The results of secret runners, and of the lists that pages ask for, are in
// the answer instead.
func (s *Service) onRunner(ctx context.Context, c *request.Call) (any, error) {
	load, o := c.Load, s.originOf(c)
	args, named := runner.LowArguments(load)
	caller, refusal := s.admitCaller(ctx, o, "runner", load, args, named)
	if refusal != nil {
		return refusal, nil
	}

	call := &runnerCall{
		Service:  s,
		from:     o,
		caller:   caller,
		fun:      load.Str("fun"),
		args:     args,
		named:    named,
		answered: load.Bool(client.AnswerField),
	}
	if call.fun == tokenMaker && !call.answered {
		return (&eauth.Failure{
			Name: "SaltInvocationError",
			Message: tokenMaker + " gives its token in the answer of the master and not in an event, " +
				"for which this client waits. Log in by /login of salt-api instead.",
		}).Map(), nil
	}

	inAnswer := runner.Secret(call.fun, named) || call.answered && load.Bool(client.PageField)
	if inAnswer && onlyLists(call.fun) {
		return call.answerList(ctx, c)
	}

	s.awaitReaders(ctx)
	run := call.announce()
	if run.Secret {
		var answer *value.Map
		err := whileAsked(ctx, c, call.fun, func(ctx context.Context) { answer = call.answer(ctx, run) })
		return answer, err
	}

	actor := o.actorOf(caller)
	if !s.cfg.Background.Go(func(ctx context.Context) { run.Do(audit.WithActor(ctx, actor), call.failed) }) {
		return busyWith("other runners"), nil
	}
	return value.NewMap("tag", run.Tag, "jid", run.JID), nil
}

// announce tells of the run on the bus and in the audit record.
func (r *runnerCall) announce() *runner.Run {
	run := r.cfg.Runs.Announce(r.fun, runner.Caller{
		User:    r.user(),
		Eauth:   r.caller.Eauth,
		Person:  true,
		Name:    r.caller.Name,
		Groups:  r.caller.Groups,
		All:     r.caller.All,
		Full:    r.caller.All || acl.MayEverything(r.caller.Permissions),
		Granted: r.caller.All || acl.Special(r.caller.Permissions, "runner", r.fun, r.args, r.named),
	}, r.args, r.named)

	record := r.from.callRecord(r.caller, "runner", r.fun)
	record.JID = run.JID
	record.Result = audit.Started
	record.Object = askedAbout(r.fun, r.args, r.named)
	if !onlyLists(r.fun) {
		r.cfg.Audit.Note(record)
	}
	return run
}

// answerList calls a runner that only lists, when it is its turn, and answers with its result. A run begins with its
// turn: one whose caller leaves before leaves no trace.
func (r *runnerCall) answerList(ctx context.Context, c *request.Call) (any, error) {
	var answer *value.Map
	err := c.Park(ctx, func(connected context.Context) error {
		ctx, cancel := context.WithTimeout(connected, listFor)
		defer cancel()
		stop := context.AfterFunc(r.cfg.Background.Ending(), cancel)
		defer stop()

		return r.lists.Do(ctx, func() {
			run := r.announce()
			run.Secret = true
			answer = r.answer(ctx, run)
			answer.Set("data", event.Fit(answer.Map("data"), maxListAnswer))
		})
	})

	switch {
	case errors.Is(err, background.ErrFull):
		r.cfg.Quiet.Warn("list is refused: too many others wait", "fun", r.fun, "user", r.user())
		return busyWith("other lists"), nil
	case answer == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return busyWith("other lists"), nil // unless the caller has left or the master stops
	case err != nil:
		return nil, err
	}
	return answer, nil
}

// answer calls a runner and returns the answer with its result.
func (r *runnerCall) answer(ctx context.Context, run *runner.Run) *value.Map {
	run.Unkept = r.answered
	data := run.Do(audit.WithActor(source.With(ctx, r.from.addr), r.from.actorOf(r.caller)), r.failed)
	return value.NewMap("tag", run.Tag, "jid", run.JID, "data", data)
}

func (r *runnerCall) failed(err error) {
	r.cfg.Log.Error("runner failed", "fun", r.fun, "user", r.user(), "error", err)
}

func (r *runnerCall) user() string { return strings.TrimPrefix(r.caller.Name, "sudo_") }

// busyWith returns the answer to a caller for whom the master has no place.
func busyWith(others string) *value.Map {
	return (&eauth.Failure{
		Name:    "SaltClientError",
		Message: "The master is busy with " + others + ". Try again later.",
		Busy:    true,
	}).Map()
}

// leavesPort reports whether a runner waits for minions or others for long while its caller waits for the
// answer, and bounds itself.
func leavesPort(fun string) bool { return client.AnswersLate(fun) || fun == "fleet.explain" }

// whileAsked calls do, which works on a runner whose result is only in the answer. If the runner
// leaves the port, the time limit of requests does not apply, and the context of do ends when the
// caller disconnects.
func whileAsked(ctx context.Context, c *request.Call, fun string, do func(context.Context)) error {
	if !leavesPort(fun) {
		do(ctx)
		return nil
	}
	return c.Park(ctx, func(connected context.Context) error {
		do(connected)
		return nil
	})
}
