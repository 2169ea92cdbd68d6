package eauth

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"saltern/master/pyrunner"
	"saltern/master/value"
)

const (
	// maxPythons bounds the number of Python processes; each process uses some 60 MiB of memory.
	// Overflow policy: further log-ins wait for a process.
	maxPythons = 4
	// maxVerdict bounds the size of a module's answer, in bytes. Most of an answer is the names of
	// groups.
	maxVerdict = 1 << 20
	// maxAsked bounds how long a module may work on one log-in.
	maxAsked = time.Minute
	// idleTime is how long an unused Python process is kept.
	idleTime = 5 * time.Minute
	// maxServed is how many log-ins one process serves before it is replaced, because modules may
	// leak memory.
	maxServed = 1000
)

//go:embed login.py
var loginScript string

// Python checks log-ins with Salt's own modules and those of the administrator. The modules run in
// Python processes: one process for each concurrent log-in, at most [maxPythons]. An idle process
// is kept for later log-ins. Names and passwords are passed through a pipe. Python runs isolated
// (-I), in the root directory. The methods may be called concurrently. Close must be called.
type Python struct {
	cfg     pyrunner.KeptConfig
	conf    string // the master's configuration file
	layer   string // link to the directory of packages
	turns   chan struct{}
	mu      sync.Mutex
	idle    []worker // the most recently used process comes last
	closed  bool
	cleaner *time.Timer
}

// worker is a Python process that serves one log-in after another.
type worker struct {
	kept   *pyrunner.Kept
	layer  string
	served int
	used   time.Time
}

// NewPython returns a Python. It tries the interpreters in pythons in order; if pythons is empty,
// it tries the usual interpreters. layer is a directory of packages ([pyrunner.Layer]), or "". No
// process starts before the first log-in.
func NewPython(pythons []string, configFile, layer string) *Python {
	if len(pythons) == 0 {
		pythons = []string{"/opt/saltstack/salt/bin/python3", "python3"}
	}
	p := &Python{
		cfg:   pyrunner.KeptConfig{Pythons: pythons, Program: loginScript, Env: os.Environ()},
		conf:  configFile,
		layer: layer,
		turns: make(chan struct{}, maxPythons),
	}
	p.cleaner = time.AfterFunc(idleTime, func() { p.endIdle(time.Now().Add(-idleTime)) })
	return p
}

// Login checks a name and a password. The permissions come from the function "acl" of the system's
// module; without that function they come from the module in eauth_acl_module.
func (p *Python) Login(ctx context.Context, system, user, password string) (Verdict, error) {
	m, err := p.askPython(ctx, "login", system, user, password)
	if err != nil {
		return Verdict{}, fmt.Errorf("ask external_auth %q: %w", system, err)
	}
	return Verdict{OK: m.Bool("ok"), Groups: m.Texts("groups"), Permissions: m.List("acl")}, nil
}

// Permissions returns the permissions from the module in eauth_acl_module for a user whose password
// another backend has checked. It returns nil if the module does not know the user.
func (p *Python) Permissions(ctx context.Context, system, user, password string) ([]any, error) {
	m, err := p.askPython(ctx, "acl", system, user, password)
	return m.List("acl"), err
}

// askPython sends a request to one Python process and returns the answer.
func (p *Python) askPython(ctx context.Context, question, system, user, password string) (*value.Map, error) {
	select {
	case p.turns <- struct{}{}:
		defer func() { <-p.turns }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	w, err := p.takeWorker(ctx)
	if err != nil {
		return nil, err
	}

	m, err := w.kept.Ask(ctx,
		value.NewMap("what", question, "conf", p.conf, "eauth", system, "username", user, "password", password),
		maxVerdict, maxAsked)
	if err != nil {
		w.kept.Close()
		return nil, err
	}

	w.served++
	p.keepIdle(w)
	if text := m.Str("error"); text != "" {
		return nil, errors.New(text)
	}

	return m, nil
}

// takeWorker returns the most recently used idle process, or starts one.
func (p *Python) takeWorker(ctx context.Context) (worker, error) {
	layer := pyrunner.Layer(p.layer)
	for {
		w, ok := p.popIdle()
		if !ok {
			break
		}
		if w.kept.Alive() && w.layer == layer && w.served < maxServed {
			return w, nil
		}

		w.kept.Close()
	}

	cfg := p.cfg
	cfg.Layer = layer
	k, err := pyrunner.Keep(ctx, cfg)
	if errors.Is(err, pyrunner.ErrNoSalt) {
		err = fmt.Errorf("%w: install it or set saltern_renderer_python", err)
	}

	return worker{kept: k, layer: layer}, err
}

func (p *Python) popIdle() (w worker, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return w, false
	}
	w, p.idle = p.idle[n-1], p.idle[:n-1]
	return w, true
}

// keepIdle keeps a process for later log-ins.
func (p *Python) keepIdle(w worker) {
	w.used = time.Now()
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.idle = append(p.idle, w)
		p.cleaner.Reset(idleTime)
	}
	p.mu.Unlock()
	if closed {
		w.kept.Close()
	}
}

// endIdle ends the processes that have been idle since before since.
func (p *Python) endIdle(since time.Time) {
	p.mu.Lock()
	var old, young []worker
	for _, w := range p.idle {
		if w.used.After(since) {
			young = append(young, w)
		} else {
			old = append(old, w)
		}
	}

	p.idle = young
	if len(young) > 0 {
		p.cleaner.Reset(idleTime)
	}
	p.mu.Unlock()

	for _, w := range old {
		w.kept.Close()
	}
}

// Close ends all processes. A process that is checking a log-in ends after its answer.
func (p *Python) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cleaner.Stop()
	p.endIdle(time.Now().Add(time.Hour))
}
