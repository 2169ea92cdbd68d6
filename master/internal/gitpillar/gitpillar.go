// Package gitpillar keeps the repositories of git pillars (ext_pillar: git) up
// to date. Compiling a pillar only checks out what was fetched before, so a
// master has to fetch by itself.
//
// A round of fetches is one short-lived Python with Salt's library, which knows
// the options of remotes, authentication and the layout of the cache. Locks
// that a killed process left behind are removed first.
//
// Sources: salt/master.py Maintenance.handle_git_pillar,
// salt/daemons/masterapi.py init_git_pillar, salt/utils/gitfs.py.
package gitpillar

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/command"
	"saltern/master/value"
	"saltern/printable"
)

//go:embed fetch.py
var script string

const (
	// defaultLimit is the time for one remote. Salt has no bound.
	defaultLimit = 5 * time.Minute
	// maxOutput bounds what a round says.
	maxOutput = 1 << 20
	// exitNoSalt is how the script ends where Salt cannot be imported.
	exitNoSalt = 3
)

// Configured reports whether the option ext_pillar has a git pillar.
func Configured(extPillar []any) bool {
	return slices.ContainsFunc(extPillar, func(e any) bool {
		m, _ := e.(*value.Map)
		_, git := m.Get("git")
		return git
	})
}

// Interval is the time between two fetches: Salt looks every loop_interval
// whether git_pillar_update_interval is over.
func Interval(update, loop time.Duration) time.Duration {
	return max(1, (update+loop-1)/loop) * loop
}

// Config of a Fetcher.
type Config struct {
	Pythons    []string      // interpreters to try, in this order: paths or names in PATH
	ConfigFile string        // the master's
	Limit      time.Duration // for one remote, besides the start of Python; 0: 5 min
	Log        *slog.Logger
}

// Fetcher fetches the remotes of all git pillars. It is for one goroutine.
type Fetcher struct{ cfg Config }

// New makes a Fetcher. No process starts before the first Fetch.
func New(cfg Config) *Fetcher {
	if cfg.Limit <= 0 {
		cfg.Limit = defaultLimit
	}
	return &Fetcher{cfg}
}

// A RemoteError tells of a remote that could not be fetched.
type RemoteError struct {
	Remote string // as configured; may hold a password
	Text   string // what git or Salt says; may hold a password
}

func (e *RemoteError) Error() string { return e.Remote + ": " + e.Text }

// said is one line of the script.
type said struct {
	Begin, Remote, End, Error string
	Refused, Log              string
	Done                      bool
}

// Fetch fetches every remote once. A remote that does not answer in time is
// given up, and the others are fetched. Errors of remotes are a *RemoteError
// each, joined. All processes end with ctx.
func (f *Fetcher) Fetch(ctx context.Context) error {
	var errs []error
	skip := []string{}
	for {
		ended, stuck, err := f.round(ctx, skip, &errs)
		if stuck.Begin == "" || ctx.Err() != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, &RemoteError{stuck.Remote, err.Error()})
		skip = append(append(skip, ended...), stuck.Begin)
	}
}

// round runs the script once: on all remotes but those of skip. stuck is the
// remote at which it was stopped or ended, err why.
func (f *Fetcher) round(ctx context.Context, skip []string, errs *[]error) (ended []string, stuck said, err error) {
	request, err := json.Marshal(map[string]any{"config": f.cfg.ConfigFile, "skip": skip, "limit": f.cfg.Limit.Seconds()})
	if err != nil {
		return nil, stuck, fmt.Errorf("fetch git pillars: %w", err)
	}
	for _, python := range f.cfg.Pythons {
		path, err := exec.LookPath(python)
		if err == nil {
			path, err = filepath.Abs(path) // it runs in another directory
		}
		if err != nil {
			continue
		}
		out, err := f.run(ctx, path, string(request))
		if err == nil && out.Exit == exitNoSalt {
			continue
		}
		done := false
		for line := range bytes.Lines(out.Stdout) {
			var s said
			if json.Unmarshal(line, &s) != nil {
				continue
			}
			switch {
			case s.Begin != "":
				stuck = s
			case s.End != "":
				if s.Error != "" {
					*errs = append(*errs, &RemoteError{stuck.Remote, s.Error})
				}
				ended, stuck = append(ended, s.End), said{}
			case s.Refused != "":
				*errs = append(*errs, fmt.Errorf("a git pillar cannot be used: %s", s.Refused))
			case s.Log != "":
				f.cfg.Log.Warn("git pillars: " + s.Log)
			}
			done = done || s.Done
		}
		if err == nil && !done {
			err = fmt.Errorf("it ended with exit status %d: %s", out.Exit, printable.LastLine(string(out.Stderr), 300))
		}
		return ended, stuck, err
	}
	return nil, stuck, fmt.Errorf("no Python with Salt's library was found (tried %s); set saltern_renderer_python", strings.Join(f.cfg.Pythons, ", "))
}

// run runs the script until it says nothing for the time of a remote.
func (f *Fetcher) run(ctx context.Context, python, request string) (command.Output, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(f.cfg.Limit, func() { cancel(fmt.Errorf("no answer within %v", f.cfg.Limit)) })
	defer late.Stop()
	out, err := command.Exec{Stdin: request, MaxOutput: maxOutput, Env: environment(), Add: []string{"LC_ALL=C.UTF-8"},
		Tee: progress(func() { late.Reset(f.cfg.Limit) })}.Run(ctx, []string{python, "-I", "-c", script})
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, command.ErrOutput):
		err = command.ErrOutput
	case err != nil:
		err = errors.New("the process could not be started or read")
	}
	return out, err
}

// progress is told of every write.
type progress func()

func (p progress) Write(b []byte) (int, error) { p(); return len(b), nil }

// environment makes git ask nobody for a password, and leave a server that
// sends nothing.
func environment() []string {
	env := command.PythonEnviron()
	for name, value := range map[string]string{"GIT_TERMINAL_PROMPT": "0", "GIT_HTTP_LOW_SPEED_LIMIT": "1", "GIT_HTTP_LOW_SPEED_TIME": "60"} {
		if os.Getenv(name) == "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}
