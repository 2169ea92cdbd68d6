package extpillar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/master/internal/pillar/hangs"
	"saltern/master/value"
)

var (
	// ErrInexact means that Salt's module has to run: Go may do it in another way.
	ErrInexact = errors.New("the module of Salt has to run")
	// errHangs means that a command or a file system did not answer in time, now or a moment ago.
	errHangs = errors.New("the command or the file system did not answer in time")
	// errClosed means that the Runner is closed.
	errClosed = errors.New("the master stops")
	// errShort means that this process has no memory or no file descriptors for it now, or cannot start the
	// program now.
	errShort = errors.New("this master is short of memory, processes or file descriptors, or cannot read the program now")
)

// Unable reports whether err means that this master cannot run an entry now. If so, a later try or
// another master may succeed.
func Unable(err error) bool {
	for _, cause := range []error{errHangs, errClosed, errShort, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

const (
	defaultLimit = time.Minute // as for a request to Python
	closeTakes   = 3 * time.Second
)

// Config of a Runner. The zero value of a field is its default.
type Config struct {
	// Modules is the directory of the administrator's own modules (extension_modules). A module there
	// takes the place of the one of Salt, and is run by Python. "": there is none.
	Modules string
	// AtOnce is how many commands run at once, and how many trees are read at once; 0: four for each
	// CPU, at least eight. Others wait.
	AtOnce int
	Limit  time.Duration // time for one command or one tree; 0: a minute
	Log    *slog.Logger  // nil: no log
}

// Runner runs entries of ext_pillar. It is safe for concurrent use.
type Runner struct {
	cfg      Config
	ctx      context.Context
	stop     context.CancelFunc
	commands chan struct{} // a command at work holds a place
	readers  chan struct{} // so does a goroutine that is in the file system
	work     sync.WaitGroup
	suspects suspects // command lines that hung a while ago

	mu     sync.Mutex
	hangs  map[string]*hangs.Hangs[string] // by Entry.key, so that they outlive a Compiler
	exits  map[string]failedExits          // by Entry.key
	closed bool
	stats  Stats
	// askedBytes counts the bytes that all Asked keep.
	askedBytes int
}

// Stats are counters since the start.
type Stats struct {
	InGo     uint64 // entries that were run, and read, in Go
	InPython uint64 // entries that were left to Salt's module
}

// New returns a Runner. The caller closes it.
func New(cfg Config) *Runner {
	cfg.AtOnce = cmp.Or(cfg.AtOnce, max(8, 4*runtime.NumCPU()))
	cfg.Limit = cmp.Or(cfg.Limit, defaultLimit)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	r := &Runner{
		cfg:      cfg,
		commands: make(chan struct{}, cfg.AtOnce),
		readers:  make(chan struct{}, cfg.AtOnce),
		hangs:    map[string]*hangs.Hangs[string]{},
		exits:    map[string]failedExits{},
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Close ends all commands and waits for all work, but a few seconds at most: a file system may hang.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop()

	ended := make(chan struct{})
	go func() {
		r.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTakes):
	}
}

// Stats returns the counters. r may be nil.
func (r *Runner) Stats() Stats {
	if r == nil {
		return Stats{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Count counts an entry that was run, by Salt's module if inPython is set.
func (r *Runner) Count(inPython bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if inPython {
		r.stats.InPython++
	} else {
		r.stats.InGo++
	}
}

// Minion is the minion for whose pillar an entry runs.
type Minion struct {
	ID string
	// Groups are the nodegroups of the master. It may be nil: there are none.
	Groups *value.Map
	// InGroup reports whether the minion is in a group with this definition. After an error Salt's
	// module finds out.
	InGroup func(definition any) (bool, error)
}

// Run returns what an entry adds to the pillar of a minion. It may return nil: nothing. The value must
// not be changed. asked holds what commands have said for this pillar; it may be nil. After
// ErrInexact, output holds what the command of the entry has said, or nil if no command has run.
func (r *Runner) Run(ctx context.Context, e *Entry, m Minion, asked *Asked) (v *value.Map, output []byte, err error) {
	if err := r.checkModule(ctx, e); err != nil {
		return nil, nil, err
	}

	switch {
	case e.IsCommand():
		if output, err = r.ask(ctx, e, m, asked); err == nil {
			v, err = e.read(output)
		}
	case e.Name == "nodegroups":
		v, err = e.groupsOf(m)
	default:
		v, err = r.bounded(ctx, e, m.ID, func(ctx context.Context) (*value.Map, error) {
			return e.tree.read(ctx, r.cfg.Log, m)
		})
	}

	if err != nil && !errors.Is(err, ErrInexact) {
		output = nil
		err = fmt.Errorf("%s: %w", e.Name, err)
	}
	return v, output, err
}

// checkModule returns ErrInexact if the administrator has a module in place of one that an entry uses.
func (r *Runner) checkModule(ctx context.Context, e *Entry) error {
	if r.cfg.Modules == "" {
		return nil
	}
	// It has hangs of its own: an answer of this directory is none of the entry.
	modules := &Entry{Name: "extension_modules"}
	_, err := r.bounded(ctx, modules, r.cfg.Modules, func(context.Context) (*value.Map, error) {
		if hasModule(filepath.Join(r.cfg.Modules, "pillar"), e.Name) ||
			e.IsCommand() && hasModule(filepath.Join(r.cfg.Modules, "modules"), "cmd", "cmdmod") {
			return nil, ErrInexact
		}
		return nil, nil
	})
	return err
}

// hasModule reports whether a directory has, or may have, a module with one of the names.
func hasModule(dir string, names ...string) bool {
	files, err := os.ReadDir(dir)
	for _, file := range files {
		if name, _, _ := strings.Cut(file.Name(), "."); slices.Contains(names, name) {
			return true
		}
	}
	return err != nil && !errors.Is(err, fs.ErrNotExist)
}

// bounded runs work in a goroutine of its own, and leaves it alone when it does not end in time: a
// file system may hang. The goroutine keeps its place of the readers until it ends. key names what
// may hang. After a panic of work, Salt's module has to run.
func (r *Runner) bounded(
	parent context.Context,
	e *Entry,
	key string,
	work func(context.Context) (*value.Map, error),
) (*value.Map, error) {
	ctx, end, err := r.begin(parent, e, key)
	if err != nil {
		return nil, err
	}
	defer end()

	select {
	case r.readers <- struct{}{}:
	case <-ctx.Done():
		return nil, r.outOfTime(parent, e, key)
	}

	type result struct {
		v   *value.Map
		err error
	}
	done := make(chan result, 1)
	started := r.start(func() {
		defer func() { <-r.readers }()
		got := result{err: ErrInexact}
		defer func() {
			if cause := recover(); cause != nil {
				r.cfg.Log.Error("an ext_pillar failed in Go, and is left to Salt's module",
					"ext_pillar", e.Name, "error", cause, "stack", string(debug.Stack()))
			}
			done <- got
		}()
		v, err := work(ctx)
		got = result{v, err}
	})
	if !started {
		<-r.readers
		return nil, errClosed
	}

	select {
	case got := <-done:
		if ctx.Err() != nil {
			return nil, r.outOfTime(parent, e, key)
		}
		r.noteAnswer(e)
		return got.v, got.err
	case <-ctx.Done():
		return nil, r.outOfTime(parent, e, key)
	}
}

// start runs f in a goroutine for which Close waits. It returns false if the Runner is closed.
func (r *Runner) start(f func()) bool {
	if !r.enter() {
		return false
	}
	go func() {
		defer r.work.Done()
		f()
	}()
	return true
}

// enter registers work for which Close waits, until r.work.Done is called. It returns false if the
// Runner is closed.
func (r *Runner) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.work.Add(1)
	return true
}

// begin returns a context for work, which ends with the Runner and at the deadline. The caller calls
// end. begin returns errHangs if the work is to be left alone.
func (r *Runner) begin(ctx context.Context, e *Entry, key string) (_ context.Context, end func(), err error) {
	r.mu.Lock()
	h := r.hangs[e.key()]
	resting := h != nil && h.IsResting(key, time.Now())
	r.mu.Unlock()
	if resting {
		return nil, nil, errHangs
	}

	ctx, cancel := context.WithTimeout(ctx, r.cfg.Limit)
	release := context.AfterFunc(r.ctx, cancel)
	return ctx, func() {
		release()
		cancel()
	}, nil
}

// outOfTime returns why work ended before it was done, and notes what hangs. parent is the context of
// the caller: one who leaves, or has no time left, says nothing about the work.
func (r *Runner) outOfTime(parent context.Context, e *Entry, key string) error {
	if parent.Err() != nil {
		return context.Cause(parent)
	}
	if r.ctx.Err() != nil {
		return errClosed
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hangs[e.key()]
	if h == nil {
		h = &hangs.Hangs[string]{OfAll: max(2, r.cfg.AtOnce)}
		r.hangs[e.key()] = h
	}
	h.NoteHang(key, time.Now())
	return errHangs
}

// noteAnswer records that work for an entry has ended in time.
func (r *Runner) noteAnswer(e *Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.hangs[e.key()]; h != nil {
		h.NoteAnswer()
	}
}
