// Package pyrunner uses Salt's library to call runner and wheel functions that exist only in
// Python, such as state.orchestrate and functions that the administrator has written.
//
// Each call runs in a separate process, which a running Python process forks ([pyhost]). The
// function, its arguments, the user for whom it runs and the path of the configuration go through a
// socket, packed as MessagePack, which keeps their types. No command line, environment or file name
// contains data of a caller. Python runs isolated (-I): it imports from its own directories only,
// not from the working directory, PYTHONPATH or the user's own packages.
//
// The process fires no event for the beginning and the end of a call, and stores no result: the
// caller in the master does, so that each call is one job. Events that the function itself fires,
// such as its progress, reach the master through its event socket.
//
// Source: salt/client/mixins.py (SyncClientMixin.low), salt/runner.py.
package pyrunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"saltern/internal/printable"
	"saltern/master/conf"
	"saltern/master/internal/pyhost"
	"saltern/master/redact"
	"saltern/master/value"
)

// ErrNoSalt means that no Python with Salt's library was found.
var ErrNoSalt = pyhost.ErrNoSalt

// UnknownError means that Python has no such function.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string { return fmt.Sprintf("'%s' is not available.", e.Name) }

// Failure reports that a function ran and failed. Return is the result that Salt's own master would
// return: a text with the exception, or data about the operations that did not succeed.
type Failure struct{ Return any }

// Error returns the last line of the exception, for logs.
func (f *Failure) Error() string {
	text, ok := f.Return.(string)
	if text = strings.TrimSpace(text); !ok || text == "" {
		return "it did not succeed"
	}
	return printable.LastLine(text, 300)
}

// maxTime bounds the duration of one call. It is long because orchestrations may take hours.
const maxTime = 24 * time.Hour

// Config configures a Caller.
type Config struct {
	Host       *pyhost.Host // host of the Python processes, from NewHost; several Callers may share it
	ConfigFile string       // path of the master's configuration file
	Layer      string       // folder of packages, see [Layer]; "": none
	Wheel      bool         // call wheel functions instead of runners
	// Git returns the options and the roots of git pillars with which Salt's library finds files
	// from git on this disk. Git may be nil: there are no files from git.
	Git func(ctx context.Context, saltenv, pillarenv string) (options *value.Map, pillars []any)
	Log *slog.Logger
	Now func() time.Time // nil: time.Now
}

// Caller calls functions. It is safe for concurrent use. The host bounds the number of parallel
// calls. A Caller does not check permissions; the code that uses it must.
type Caller struct {
	cfg Config
	// unsure is a lock: its one element belongs to the goroutine that asks for the list of
	// functions.
	unsure     chan struct{}
	loadWithin time.Duration // normally loadWithin; shorter in tests

	mu         sync.Mutex
	list       *listing
	listFailed time.Time // when Python last failed to list its functions; zero: it did not
	layer      string    // folder of the layer when list was made
}

// New returns a Caller.
func New(cfg Config) *Caller {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Caller{cfg: cfg, unsure: make(chan struct{}, 1), loadWithin: loadWithin}
}

// Job describes the job and the user for whom a function runs: its __jid__, its __user__, and the
// id in its options. If a field is empty, Salt's library uses a new job id, the account of the
// process, or the id of the master.
type Job struct {
	JID    string
	User   string
	Minion string // minion that called the function; "" for none
}

// Call is one call of a function.
type Call struct {
	Fun   string
	Args  []any
	Named *value.Map
	Job   Job
	// Shown is the arguments without their secrets. It may be nil: Run computes it.
	Shown *redact.Call
}

// Run calls a function and returns its result with the types that MessagePack keeps. For an unknown
// function it returns an *UnknownError, without starting a process if the Caller has a current list
// of the functions. For a function that failed it returns a *Failure. When ctx or the call ends,
// the process and its children are ended.
func (c *Caller) Run(ctx context.Context, call Call) (any, error) {
	if err := c.exists(ctx, call.Fun); err != nil {
		return nil, pyhost.Unbegun(err)
	}

	load := c.request("call")
	load.Set("fun", call.Fun)
	load.Set("args", append([]any{}, call.Args...))
	load.Set("kwargs", call.Named.Clone())
	load.Set("jid", call.Job.JID)
	load.Set("user", call.Job.User)
	load.Set("id", call.Job.Minion)
	shown := call.Shown
	if shown == nil {
		shown = redact.Of(call.Fun, call.Args, call.Named)
	}

	if shown.Found() {
		secrets, all := shown.Secrets()
		load.Set("secrets", secrets)
		load.Set("all", all)
		load.Set("hidden", conf.Hidden)
	}

	if c.cfg.Git != nil {
		options, pillars := c.cfg.Git(ctx, call.Named.Str("saltenv"), call.Named.Str("pillarenv"))
		load.Set("options", options)
		load.Set("git_pillars", pillars)
	}

	reply, err := c.cfg.Host.Do(ctx, pyhost.Task{Request: load, Limit: maxTime})
	if err != nil {
		return nil, fmt.Errorf("run %s in Python: %w", call.Fun, err)
	}

	ret, err := outcome(call.Fun, reply)
	if errors.As(err, new(*UnknownError)) {
		c.forget(call.Fun)
	}

	return ret, err
}

// Return passes the result of a job to returners, one after the other. Its error names the
// returners that do not exist or that have failed.
func (c *Caller) Return(ctx context.Context, returners []string, result *value.Map) error {
	load := c.request("return")
	load.Set("returners", value.List(returners))
	load.Set("result", result)
	reply, err := c.cfg.Host.Do(ctx, pyhost.Task{Request: load, Limit: maxTime})
	if err != nil {
		return fmt.Errorf("hand a result to the returners %s: %w", strings.Join(returners, ", "), err)
	}
	if text := cmp.Or(reply.Str("error"), strings.Join(reply.Texts("failed"), "; ")); text != "" {
		return fmt.Errorf("hand a result to returners: %s", text)
	}
	return nil
}

// request returns a request to functions.py with the fields that every request has.
func (c *Caller) request(op string) *value.Map {
	return value.NewMap(
		"op", op,
		"config", c.cfg.ConfigFile,
		"load_within", c.loadWithin.Seconds(),
		"wheel", c.cfg.Wheel,
		"options", value.NewMap(),
		"git_pillars", []any{},
	)
}

// outcome returns the result in the reply to a call, or the error that the reply reports.
func outcome(fun string, reply *value.Map) (any, error) {
	if text := reply.Str("error"); text != "" {
		return nil, fmt.Errorf("run %s in Python: %s", fun, text)
	}
	if reply.Bool("unknown") {
		return nil, &UnknownError{fun}
	}

	ret, ok := reply.Get("return")
	if !ok {
		return nil, fmt.Errorf("read the answer of %s: it has no result", fun)
	}
	if !reply.Bool("success") {
		return nil, &Failure{ret}
	}

	return ret, nil
}
