package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/internal/acl"
	"saltern/master/internal/background"
	"saltern/master/internal/batch"
	"saltern/master/internal/eauth"
	"saltern/master/internal/launch"
	"saltern/master/internal/request"
	"saltern/master/internal/source"
	"saltern/master/internal/wheel"
	"saltern/master/jobs"
	"saltern/master/runner"
	"saltern/master/value"
)

// Config of a Service.
type Config struct {
	Auth       *eauth.Authenticator
	Blacklist  acl.Blacklist // publisher_acl_blacklist
	Launch     *launch.Launcher
	Runs       *runner.Runs
	Wheel      *wheel.Service
	Background *background.Pool
	ReloadKeys func() error // reads the minions' keys again
	// Settle waits until the event bus has accepted all readers that have connected to it.
	Settle func(ctx context.Context) error
	Fire   func(tag string, data *value.Map) // fires an event on the bus
	// Trouble returns why this master cannot store jobs, or "". Unauthenticated callers see the
	// text.
	Trouble func() string
	// Batches runs jobs on a part of their minions at a time.
	Batches Batches
	// Saved are the saved jobs. It may be nil: there are none.
	Saved      SavedJobs
	Audit      *audit.Log   // may be nil: nothing is recorded
	Log, Quiet *slog.Logger // Quiet gets the lines that untrusted senders can provoke
}

// SavedJobs are the saved jobs, which give rights to the users whom they name.
type SavedJobs interface {
	// Admits reports whether a user may call this runner without a permission for it, since a saved job
	// names him or one of his groups, or since it lists his jobs. Which jobs he may see or run is decided
	// by the runner.
	Admits(fun, system, user string, groups []string) bool
}

// Service answers the unencrypted commands of tools on this host (salt/master.py ClearFuncs).
type Service struct {
	cfg   Config
	lists *background.Queue // of runners that only list, see answerList
	slots *batch.Slots      // of batches whose minions are asked whether they answer
}

// New returns a Service.
func New(cfg Config) *Service {
	return &Service{
		cfg:   cfg,
		lists: background.NewQueue(maxLists, maxWaitingLists),
		slots: batch.NewSlots(),
	}
}

// Methods returns the table of the commands and their handlers.
func (s *Service) Methods() request.Table {
	return request.Table{
		"ping":                  {Local: true, Do: s.onPing},
		"publish":               {Local: true, Do: s.onPublish},
		batch.Command:           {Local: true, Do: s.onPublishBatch},
		"wheel":                 {Local: true, Do: s.onWheel},
		"runner":                {Local: true, Do: s.onRunner},
		"saltern_runner_result": {Local: true, Do: s.onRunnerResult},
		"saltern_job_user":      {Local: true, Do: s.onJobUser},
		"mk_token":              {Local: true, Do: s.onLogin},
		"get_token": {
			Local: true,
			Do:    func(_ context.Context, c *request.Call) (any, error) { return s.cfg.Auth.GetToken(c.Load), nil },
		},
	}
}

// onPing answers a ping. Load balancers send pings to find out whether this master can serve
// minions.
func (s *Service) onPing(_ context.Context, c *request.Call) (any, error) {
	if trouble := s.cfg.Trouble(); trouble != "" {
		return value.NewMap("ret", false, "cluster_retry", true, control.PingFault, trouble), nil
	}
	return pongOf(c.Load), nil
}

// Bounds of the load that a ping returns: bytes of its texts, and number of fields.
const (
	maxPong       = 1024
	maxPongFields = 16
)

// pongOf returns the answer to a ping. Like Salt's master it returns the load of the ping
// (salt/master.py ClearFuncs.ping). For a load that is large or nested it returns the load of the
// usual health check.
func pongOf(load *value.Map) *value.Map {
	size := 0
	for k, v := range load.All() {
		for _, x := range []any{k, v} {
			switch x := x.(type) {
			case string:
				size += len(x)
			case nil, bool, int64, float64:
			default:
				size = maxPong + 1
			}
		}
	}

	if size > maxPong || load.Len() > maxPongFields {
		return value.NewMap("cmd", "ping")
	}

	return load
}

// caller authenticates the sender of a command. On success answer and error are nil. Otherwise
// answer is the answer for the sender. The error may contain details that the sender must not see.
func (s *Service) caller(ctx context.Context, o origin, load *value.Map) (eauth.Caller, *value.Map, error) {
	caller, err := s.cfg.Auth.Check(ctx, load, load, o.addr)
	if f, ok := errors.AsType[*eauth.Failure](err); ok {
		return eauth.Caller{}, f.Map(), err
	}
	if err != nil {
		return eauth.Caller{}, (&eauth.Failure{
			Name:    "EauthAuthenticationError",
			Message: "Authentication failure.",
		}).Map(), err
	}
	return caller, nil, nil
}

// admitCaller authenticates the caller of a wheel or runner command, and checks that he may call
// the function. refusal is nil if he may.
func (s *Service) admitCaller(
	ctx context.Context,
	o origin,
	form string,
	load *value.Map,
	args []any,
	named *value.Map,
) (caller eauth.Caller, refusal *value.Map) {
	fun := load.Str("fun")
	caller, refusal, err := s.caller(ctx, o, load)
	if refusal != nil {
		if !refusal.Bool(source.BusyField) {
			s.loginRefused(o, load, load, form+" "+fun, err)
		}
		return caller, refusal
	}
	detail := "" // of the record of a refusal
	defer func() {
		if refusal != nil {
			if o.via != "" { // Salt's own text would suggest a wrong password
				refusal.Set(source.ProvenField, true)
			}
			r := o.callRecord(caller, form, fun)
			r.Result = audit.Refused
			r.Detail = detail
			s.cfg.Audit.Note(r)
		}
	}()

	if !caller.All {
		if !acl.IsWellFormed(fun) && len(caller.Permissions) > 0 {
			detail = "no valid name of a function"
			return caller, (&eauth.Failure{
				Name:    "SaltInvocationError",
				Message: "A command invocation error occurred: Check syntax.",
			}).Map()
		}

		saved := form == "runner" && s.cfg.Saved != nil && s.cfg.Saved.Admits(fun, caller.Eauth, caller.Name, caller.Groups)
		if !saved && !acl.Special(caller.Permissions, form, fun, args, named) {
			s.cfg.Quiet.Warn("caller may not call this", "user", caller.Name, "kind", caller.Kind, "form",
				form, "fun", fun)
			return caller, (&eauth.Failure{Name: eauth.ErrorName(caller.Kind),
				Message: fmt.Sprintf(`Authentication failure of type "%s" occurred for user %s.`,
					caller.Kind, caller.Name)}).Map()
		}
	}

	return caller, nil
}

// onLogin answers mk_token, which requests a token for a name and a password.
func (s *Service) onLogin(ctx context.Context, c *request.Call) (any, error) {
	o := s.originOf(c)
	system, user := c.Load.Str("eauth"), c.Load.Str("username")
	v, err := s.cfg.Auth.MakeToken(ctx, c.Load, o.addr)
	switch {
	case errors.Is(err, eauth.ErrBusy) && o.via != "":
		return eauth.Busy().Map(), nil
	case errors.Is(err, eauth.ErrBusy):
		// Salt's tools take any map for a token. After an empty text they send the command again
		// with the password (salt/cli/salt.py), and then get the right answer.
		return "", nil
	case v == "":
		s.loginRefused(o, c.Load, nil, "mk_token", err)
		return "", nil
	case err == nil:
		if t, ok := v.(*value.Map); ok {
			user = t.Str("name") // the name in the external system's spelling
		}

		s.cfg.Audit.Note(audit.Record{Actor: audit.Actor{
			User:  user,
			Proof: audit.Password,
			Eauth: system,
			From:  o.from,
			Via:   o.via,
		}, Action: "login", Result: audit.OK})
	}

	return v, err
}

// awaitReaders waits until the event bus has accepted the tools that have connected to it. A tool
// first connects to the bus, and then sends the command whose events it expects.
func (s *Service) awaitReaders(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := s.cfg.Settle(ctx); err != nil {
		s.cfg.Log.Warn("a tool may miss the first events of what it asks for", "error", err)
	}
}

// onWheel calls a wheel function and returns its result.
func (s *Service) onWheel(ctx context.Context, c *request.Call) (any, error) {
	load, o := c.Load, s.originOf(c)
	args, named := runner.Arguments(load)
	caller, refusal := s.admitCaller(ctx, o, "wheel", load, args, named)
	if refusal != nil {
		return refusal, nil
	}

	s.awaitReaders(ctx)
	user, fun := strings.TrimPrefix(caller.Name, "sudo_"), load.Str("fun")
	run := s.cfg.Wheel.Prepare(fun, runner.Caller{User: user, Eauth: caller.Eauth}, args, named)
	record, recorded := s.wheelRecord(o, caller, fun, args, named)
	record.JID = run.JID

	if recorded {
		asked := record
		asked.Result = audit.Asked
		s.cfg.Audit.Write(ctx, asked)
	}

	data, err := run.Do(audit.WithActor(ctx, o.actorOf(caller)))
	if err != nil {
		s.cfg.Log.Error("wheel function failed", "fun", fun, "user", user, "error", err)
	}

	if recorded {
		s.cfg.Audit.Note(record.Ended(err))
	}

	return value.NewMap("tag", run.Tag, "data", data), nil
}

// onJobUser returns the user who started a job. Only salt-api gets that answer. It asks with the
// key of the master's account, to show each user the events of his own jobs. All other callers get
// an empty answer.
func (s *Service) onJobUser(ctx context.Context, c *request.Call) (any, error) {
	who, jid := value.NewMap(), c.Load.Str("jid")
	_, passed := s.cfg.Auth.Source(c.Load, c.From.Addr())
	if !passed || !jobs.Valid(jid) {
		return who, nil
	}

	began := s.cfg.Runs.Began(jid)
	if began == nil {
		var err error
		if began, err = s.cfg.Runs.Env.Jobs.Load(ctx, jid); err != nil && !errors.Is(err, jobs.ErrBrokenLoad) {
			return who, err
		}
	}

	for _, k := range []string{"user", event.EauthField} {
		if v, ok := began.Get(k); ok {
			who.Set(k, v)
		}
	}

	return who, nil
}

// onRunnerResult returns the complete result of a runner to the user who started the runner. Tools
// ask for the result if the event of the runner's end was trimmed to max_event_size. (Salt's
// salt-run calls runners in its own process, without that bound.) The answer lacks the field
// "return" if the result is not stored, or if another user started the runner.
func (s *Service) onRunnerResult(ctx context.Context, c *request.Call) (any, error) {
	none, jid := value.NewMap(), c.Load.Str("jid")
	caller, refusal, _ := s.caller(ctx, s.originOf(c), c.Load)
	if refusal != nil {
		return refusal, nil
	}

	user := strings.TrimPrefix(caller.Name, "sudo_")
	if user == "" || !jobs.Valid(jid) {
		return none, nil
	}

	rets, err := s.cfg.Runs.Env.Jobs.Returns(ctx, jid)
	if err != nil {
		return none, err
	}

	data := rets.Map(s.cfg.Runs.ID).Map("return")
	system, said := data.Get(event.EauthField) // a user "ann" of one system is not the "ann" of another
	if said && system != caller.Eauth || data.Str("user") != user || !strings.HasPrefix(data.Str("fun"), "runner.") {
		return none, nil
	}

	ret, _ := data.Get("return")
	return value.NewMap("return", ret), nil
}
