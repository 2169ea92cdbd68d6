// Package pyrunner calls runner and wheel functions that only Python has, such as
// state.orchestrate and an administrator's own, with Salt's library.
//
// Each call is one short-lived Python that runs a fixed program. The function,
// its arguments and the path of the configuration go through its standard
// input, packed as MessagePack, so that their types stay. Nothing of a caller
// is on a command line, in the environment or in a file name. Python runs
// isolated (-I): it imports from its own directories only, whatever the working
// directory, PYTHONPATH and the user's own packages hold.
//
// Source: salt/client/mixins.py (SyncClientMixin.low), salt/runner.py.
package pyrunner

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"saltern/command"
	"saltern/master/internal/gitpillar"
	"saltern/master/pyframe"
	"saltern/master/value"
	"saltern/printable"
)

//go:embed shim.py
var shim string

// ErrNoSalt means that no Python with Salt's library was found.
var ErrNoSalt = errors.New("no Python with Salt's library was found")

// UnknownError means that Python does not have the function.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string { return fmt.Sprintf("'%s' is not available.", e.Name) }

// Failure is a function that ran and failed. Return is what Salt's own master
// would give as its result: a text with the exception, or data that says what
// did not succeed.
type Failure struct{ Return any }

// Error is the last line of the exception, for logs.
func (f *Failure) Error() string {
	text, ok := f.Return.(string)
	if text = strings.TrimSpace(text); !ok || text == "" {
		return "it did not succeed"
	}
	return printable.LastLine(text, 300)
}

const (
	// maxOutput bounds what a call answers; the shim leaves room below it.
	maxOutput = 32 << 20
	// maxTime bounds one call: orchestrations may take hours.
	maxTime = 24 * time.Hour
	// maxStart bounds the time until the shim has listed the functions.
	maxStart = 2 * time.Minute
	// exitNoSalt is how the shim ends where Salt cannot be imported.
	exitNoSalt = 3
	// retryAfter is how long it is remembered that no Python has Salt.
	retryAfter = 30 * time.Second
)

// Config of a Caller.
type Config struct {
	Pythons    []string // interpreters to try, in this order: paths or names in PATH
	ConfigFile string   // the master's
	Layer      string   // of packages, see [Layer]; empty: none
	Wheel      bool     // call wheel functions, not runners
	// Git, if any, gives the options and the roots of git pillars by which Salt's
	// library finds on this disk what comes from git.
	Git func(ctx context.Context, saltenv, pillarenv string) (options *value.Map, pillars []any)
	Log *slog.Logger
	Now func() time.Time // nil: time.Now
}

// Caller calls functions. It is safe for concurrent use; it bounds neither how
// many calls run at once nor who may call.
type Caller struct {
	cfg Config
	// unsure has one place, for the one Python that is asked about a function
	// of which it is not known whether it exists.
	unsure chan struct{}

	mu     sync.Mutex
	list   *listing
	layer  string    // with which list was made
	failed time.Time // when no Python had Salt
	why    error
}

// New makes a Caller. No Python starts before the first call.
func New(cfg Config) *Caller {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Caller{cfg: cfg, unsure: make(chan struct{}, 1)}
}

// Call calls a function and returns its result, with the types that
// MessagePack keeps. A function that does not exist is an *UnknownError, and
// starts no Python once it is known which exist. One that fails is a
// *Failure. The process and all it has started end with ctx.
func (c *Caller) Call(ctx context.Context, fun string, args []any, named *value.Map) (any, error) {
	leave, err := c.admit(ctx, fun)
	if err != nil {
		return nil, err
	}
	defer leave()
	if args == nil {
		args = []any{}
	}
	load := value.NewMap("config", c.cfg.ConfigFile, "wheel", c.cfg.Wheel, "fun", fun, "args", args, "kwargs", named.Clone(), "options", value.NewMap(), "git_pillars", []any{})
	if c.cfg.Git != nil {
		options, pillars := c.cfg.Git(ctx, named.Str("saltenv"), named.Str("pillarenv"))
		load.Set("options", options)
		load.Set("git_pillars", pillars)
	}
	request, err := pyframe.Pack(load)
	if err != nil {
		return nil, fmt.Errorf("pack the arguments of %s: %w", fun, err)
	}
	for _, python := range c.cfg.Pythons {
		path, err := exec.LookPath(python)
		if err == nil {
			path, err = filepath.Abs(path) // it runs in another directory
		}
		if err != nil {
			continue
		}
		ret, err := c.run(ctx, path, fun, request, leave)
		if !errors.Is(err, ErrNoSalt) {
			return ret, err
		}
	}
	err = fmt.Errorf("%w (tried %s)", ErrNoSalt, strings.Join(c.cfg.Pythons, ", "))
	c.mu.Lock()
	c.failed, c.why = c.cfg.Now(), err
	c.mu.Unlock()
	return nil, err
}

// admit reports a function that does not exist. Where that is not known the
// caller waits until it is the only one who asks; leave ends that, and may be
// called more than once.
func (c *Caller) admit(ctx context.Context, fun string) (leave func(), err error) {
	if !strings.Contains(fun, ".") {
		return nil, &UnknownError{fun}
	}
	known := func() (bool, error) {
		layer := Layer(c.cfg.Layer)
		c.mu.Lock()
		if layer != c.layer {
			c.layer, c.list, c.why = layer, nil, nil
		}
		l, failed, why := c.list, c.failed, c.why
		c.mu.Unlock()
		switch {
		case l != nil && l.names[fun]:
			return true, nil
		case l != nil && l.fresh(c.cfg.Now()):
			return true, &UnknownError{fun}
		case why != nil && c.cfg.Now().Sub(failed) < retryAfter:
			return true, why
		}
		return false, nil
	}
	if yes, err := known(); yes {
		return func() {}, err
	}
	select {
	case c.unsure <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	leave = sync.OnceFunc(func() { <-c.unsure })
	if yes, err := known(); yes {
		leave()
		return func() {}, err
	}
	return leave, nil
}

// run has one Python call the function. It calls listed when the answer has
// begun, after which the functions that exist are known.
func (c *Caller) run(ctx context.Context, python, fun string, request []byte, listed func()) (any, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(maxStart, func() { cancel(errSlow) })
	defer slow.Stop()
	answers := &reader{first: func(m *value.Map) {
		slow.Stop()
		c.learn(m)
		listed()
	}}
	out, err := command.Exec{Stdin: string(request), MaxOutput: maxOutput, Limit: maxTime, Env: command.PythonEnviron(), Add: []string{"LC_ALL=C.UTF-8"}, Tee: answers}.
		Run(ctx, append([]string{python}, Arguments(gitpillar.Python+shim, Layer(c.cfg.Layer))...))
	if len(out.Stderr) > 0 {
		c.cfg.Log.Debug("a runner of Python wrote", "fun", fun, "text", string(out.Stderr[max(0, len(out.Stderr)-4096):]))
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("run %s in Python: %w", fun, context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("run %s in Python: %w", fun, cause(err))
	case out.Exit == exitNoSalt:
		return nil, ErrNoSalt
	case out.Exit != 0:
		return nil, fmt.Errorf("run %s with %s: exit status %d; the log at level debug has what it wrote", fun, python, out.Exit)
	}
	return outcome(fun, out.Stdout)
}

// errSlow ends a Python that does not come to the function.
var errSlow = errors.New("it did not load Salt within two minutes; look whether the disks of the configuration and of Salt's library answer")

// cause leaves out the command line, which is our program.
func cause(err error) error {
	for _, known := range []error{command.ErrTimeout, command.ErrOutput} {
		if errors.Is(err, known) {
			return known
		}
	}
	return errors.New("the process could not be started or read")
}

// outcome reads what the shim wrote.
func outcome(fun string, stdout []byte) (any, error) {
	maps, err := frames(stdout)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", fun, err)
	}
	if len(maps) == 0 {
		return nil, fmt.Errorf("read the answer of %s: there is none", fun)
	}
	last := maps[len(maps)-1]
	if text := last.Str("error"); text != "" {
		return nil, fmt.Errorf("run %s in Python: %s", fun, text)
	}
	if last.Bool("unknown") {
		return nil, &UnknownError{fun}
	}
	ret, ok := last.Get("return")
	if !ok {
		return nil, fmt.Errorf("read the answer of %s: it has no result", fun)
	}
	if !last.Bool("success") {
		return nil, &Failure{ret}
	}
	return ret, nil
}
