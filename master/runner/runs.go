package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/pyrunner"
	"saltern/master/redact"
	"saltern/master/value"
)

// Sockets is the part of the event sockets that Runs needs. Other processes write their events to
// these sockets.
type Sockets interface {
	// AwaitWriters waits until the bus has the events of processes that have ended.
	AwaitWriters(ctx context.Context) error
}

// IDs is the source of job ids.
type IDs interface{ New() string }

// RunsConfig configures Runs.
type RunsConfig struct {
	Table *Table
	// Env is the environment of the runners of Table; NewRuns sets its Running.
	Env *Env
	// Python calls functions that exist only in Python, such as state.orchestrate or a runner that
	// the administrator has installed.
	Python *pyrunner.Caller
	ID     string // id of this master
	User   string // the master's account, the user of runs without a caller
	Keep   bool   // store results in the job cache
	// Forget means that runner_returns is off: Runs stores the results of wheel functions only.
	Forget  bool
	Fire    func(tag string, data *value.Map) // puts an event on the bus
	Sockets Sockets
	// Newest brings the files of this master up to date before a function in Python reads them. It
	// may be nil: the files are always up to date.
	Newest func(ctx context.Context)
	IDs    IDs
	Now    func() time.Time
	Log    *slog.Logger
}

// Runs calls runner functions: the functions of a Table in this process, and all others through
// Salt's library in Python if that is installed. It is safe for concurrent use.
type Runs struct {
	RunsConfig

	mu      sync.Mutex
	running map[string]*value.Map // the runs in progress by job id
}

// NewRuns returns a Runs and sets cfg.Env.Running.
func NewRuns(cfg RunsConfig) *Runs {
	r := &Runs{RunsConfig: cfg, running: map[string]*value.Map{}}
	r.Env.Running = r.Running
	return r
}

// Call calls a runner for the master itself and returns its result. It fires no events about the
// run. The schedule of Salt's master calls runners in the same way (salt/utils/schedule.py
// handle_func).
func (r *Runs) Call(ctx context.Context, fun string, args []any, named *value.Map) (any, error) {
	job := pyrunner.Job{JID: r.IDs.New(), User: r.User}
	order := Order{JID: job.JID, By: Caller{User: r.User, All: true, Full: true, Granted: true}}
	order.Schedule, _ = ctx.Value(entryKey{}).(string)
	return r.callRunner(context.WithValue(ctx, orderKey{}, order), pyrunner.Call{
		Fun:   fun,
		Args:  args,
		Named: named,
		Job:   job,
	})
}

// Order names the run for which a runner works, and the user who started it.
type Order struct {
	JID    string
	Minion string // the minion that called the runner, or ""
	Person bool   // a person waits for the result and may have changed files just before
	// By is who called the runner. It is empty for a minion.
	By Caller
	// Schedule is the entry of the schedule that called the runner, or "".
	Schedule string
}

type orderKey struct{}

type entryKey struct{}

// WithSchedule returns a context in which [Runs.Call] calls runners for an entry of the schedule.
func WithSchedule(ctx context.Context, entry string) context.Context {
	return context.WithValue(ctx, entryKey{}, entry)
}

// OrderOf returns the Order in the context of a runner, or the zero Order.
func OrderOf(ctx context.Context) Order {
	o, _ := ctx.Value(orderKey{}).(Order)
	return o
}

// callRunner calls a runner of the table, or one in Python, and returns its result.
func (r *Runs) callRunner(ctx context.Context, c pyrunner.Call) (any, error) {
	fun := c.Fun
	args := c.Args
	named := c.Named
	if r.Table.Has(fun) {
		ret, err := r.Table.Call(ctx, r.Env, fun, args, named)
		if !errors.Is(err, ErrUnavailable) {
			return ret, err
		}
	}

	ret, err := r.OfPython(ctx, r.Python, c)
	var unknown *pyrunner.UnknownError
	switch {
	case errors.As(err, &unknown):
		return nil, &UnknownError{Name: fun}
	case errors.Is(err, pyrunner.ErrNoSalt):
		return nil, fmt.Errorf("'%s' is not available: this master does not have the function itself, and %w; set saltern_renderer_python",
			fun, err)
	}

	return ret, err
}

// InPython reports whether a function is not in the table, so that it runs in Python.
func (r *Runs) InPython(fun string) bool { return !r.Table.Has(fun) }

// Prepare starts Python and has it list its functions, so that the next call of one waits for neither. It
// logs no error: the call itself fails then.
func (r *Runs) Prepare(ctx context.Context, fun string) {
	if err := r.Python.Prepare(ctx); err != nil {
		r.Log.Debug("Python is not ready for a function", "fun", fun, "error", err)
	}
}

// Public returns the part of a function's result that every reader of events may see.
func (r *Runs) Public(fun string, named *value.Map, result any) any {
	if Secret(fun, named) {
		return NotForAll
	}
	return result
}

// Return passes a result to returners, Salt's or the administrator's, which run in Python.
func (r *Runs) Return(ctx context.Context, returners []string, result *value.Map) error {
	return r.Python.Return(ctx, returners, result)
}

// OfPython calls a function in Python. When OfPython returns, the bus has all events that the
// function has fired, so they precede the event of the function's end.
func (r *Runs) OfPython(ctx context.Context, python *pyrunner.Caller, c pyrunner.Call) (any, error) {
	if r.Newest != nil {
		r.Newest(ctx)
	}
	ret, err := python.Run(ctx, c)
	if errors.As(err, new(*pyrunner.UnknownError)) || errors.Is(err, pyrunner.ErrNoSalt) {
		return nil, err // no function ran
	}
	// Wait for the events that the call has fired.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := r.Sockets.AwaitWriters(ctx); err != nil {
		r.Log.Warn("events of a function may come after that of its end", "fun", c.Fun, "jid", c.Job.JID, "error", err)
	}
	return ret, err
}

// Running returns the runs in progress, the oldest first; see Env.Running.
func (r *Runs) Running() []*value.Map {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*value.Map, 0, len(r.running))
	for _, jid := range slices.Sorted(maps.Keys(r.running)) {
		run := r.running[jid].Clone()
		run.Delete(event.EauthField) // jobs.master of Salt does not have it
		out = append(out, run)
	}
	return out
}

// At reports whether a run with this job id is in progress.
func (r *Runs) At(jid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.running[jid]
	return ok
}

// Began returns the data of the start event of a run in progress. It returns nil when no run in
// progress has this job id.
func (r *Runs) Began(jid string) *value.Map {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[jid]
}

// Run is a call of a runner whose start and end are events on the bus.
type Run struct {
	JID, Tag string
	Secret   bool // only the caller may get the return
	Unkept   bool // the job cache gets nothing of the run
	by       Caller
	runs     *Runs
	call     pyrunner.Call
	data     *value.Map
}

// Caller identifies the user who calls a runner.
type Caller struct {
	User  string
	Eauth string // system of external_auth that authenticated the caller; "" for a key
	// Person means that a person waits for the runner and may have changed files just before.
	Person bool
	// Name is the name under which the caller has rights: that of User without the prefix by which
	// tools mark users of sudo. Groups are his groups in the system Eauth.
	Name   string
	Groups []string
	// All means that the caller has the key of root or of the master's account. Full means that he
	// may do everything, by that key or by his permissions. Granted means that he is permitted to
	// call this runner; without it only a saved job admits him.
	All, Full, Granted bool
}

// Announce creates a run with a job id and fires the event of its start. The caller must then call
// Do, which executes the run.
func (r *Runs) Announce(fun string, by Caller, args []any, named *value.Map) *Run {
	call := pyrunner.Call{Fun: fun, Args: args, Named: named, Job: pyrunner.Job{User: by.User}}
	run := r.announce(call, by.Eauth)
	run.by = by
	return run
}

// AnnounceFor works like Announce, for a minion. As in Salt, the user of the run is the master's
// account, and the result is stored as the minion's return (salt/daemons/masterapi.py
// minion_runner).
func (r *Runs) AnnounceFor(minion, fun string, args []any, named *value.Map) *Run {
	call := pyrunner.Call{Fun: fun, Args: args, Named: named, Job: pyrunner.Job{User: r.User, Minion: minion}}
	return r.announce(call, "")
}

func (r *Runs) announce(c pyrunner.Call, system string) *Run {
	c.Job.JID = r.IDs.New()
	c.Shown = redact.Of(c.Fun, c.Args, c.Named)
	run := &Run{JID: c.Job.JID, Secret: Secret(c.Fun, c.Named), runs: r, call: c}
	run.Tag = event.Tag("run", run.JID)
	run.data = value.NewMap(
		"fun", "runner."+c.Fun,
		"jid", run.JID,
		"user", c.Job.User,
		event.EauthField, system,
		"fun_args", run.call.Shown.FunArgs(),
	)
	r.Fire(run.Tag+"/new", run.data)
	return run
}

// Do calls the runner, stores its result, fires the event of its end, and returns the data of that
// event for the caller. If the runner fails, Do calls failed first. Nothing that other users see
// contains secrets from the caller's arguments, not even the text of the runner's error: see
// package redact.
func (run *Run) Do(ctx context.Context, failed func(error)) *value.Map {
	r := run.runs
	defer r.trackRun(run.data)()
	order := Order{
		JID:    run.JID,
		Minion: run.call.Job.Minion,
		Person: run.by.Person,
		By:     run.by,
	}

	ret, err := r.callRunner(context.WithValue(ctx, orderKey{}, order), run.call)
	data := run.data.Clone()
	if err != nil {
		failed(run.call.Shown.Error(err))
	}

	result, success := Outcome("runner", run.call.Fun, ret, err)
	data.Set("return", result)
	data.Set("success", success)
	shown := data.Clone()
	shown.Set("return", run.call.Shown.Result(result))

	if run.Secret && success {
		shown.Set("return", NotForAll)
	}

	if !r.Forget && !run.Unkept {
		// without the deadline of ctx, because the error after an expired deadline is a result, too
		r.KeepResult(context.WithoutCancel(ctx), run.call.Job, shown)
	}

	r.Fire(run.Tag+"/ret", shown)
	return data
}

// trackRun adds a run to the runs that Running returns. The caller must call done, which removes
// the run.
func (r *Runs) trackRun(data *value.Map) (done func()) {
	jid := data.Str("jid")
	entry := data.Clone()
	entry.Set("pid", int64(os.Getpid()))
	entry.Set("_stamp", event.Stamp(r.Now()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[jid] = entry
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, jid)
	}
}

// KeepResult stores the result of a runner or wheel function in the job cache: as the return of the
// minion that called the function, or as the return of this master if no minion called it
// (salt/client/mixins.py low, salt/utils/job.py store_job).
func (r *Runs) KeepResult(ctx context.Context, job pyrunner.Job, data *value.Map) {
	if !r.Keep {
		return
	}

	if Private(data.Str("fun")) {
		data = data.Clone()
		data.Set("return", NotForAll)
	}

	id := cmp.Or(job.Minion, r.ID)
	load := value.NewMap("id", id, "tgt", id, "jid", job.JID, "return", data, "fun", data.Str("fun"), "user",
		data.Str("user"))
	if system, ok := data.Get(event.EauthField); ok {
		load.Set(event.EauthField, system)
	}

	_, err := r.Env.Jobs.SaveReturn(ctx, jobs.ReturnOf(load))
	if err != nil && !errors.Is(err, jobs.ErrOtherReturn) {
		r.Log.Error("result of a runner or wheel function is not kept", "jid", job.JID, "fun",
			data.Str("fun"), "error", err)
	}
}

// Outcome returns the fields return and success of the end event of a runner or wheel function. If
// the function failed in Python, the result is Salt's own text.
func Outcome(form, fun string, ret any, err error) (result any, success bool) {
	var failed *pyrunner.Failure
	switch {
	case err == nil:
		return ret, true
	case errors.As(err, &failed):
		return failed.Return, false
	}
	if usage := Result(err); usage != nil {
		return usage, true
	}
	text := strings.TrimPrefix(err.Error(), form+" "+fun+": ")
	return fmt.Sprintf("Exception occurred in %s %s: %s", form, fun, text), false
}
