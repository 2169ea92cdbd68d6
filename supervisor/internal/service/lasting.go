package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"saltern/internal/durable"

	"golang.org/x/sys/unix"
)

// Lasting is a [Runner] for a process that outlives this one. The process gets no signal when this
// one dies. It writes its output to a named pipe that it holds open itself. The next Run, in this
// life or the next, adopts the process under two conditions: the process has the program and the
// configuration that a start would use (Tag), and Answers returns nil. Otherwise Run starts a new
// process beside it, which takes over its work. The earlier process then ends by itself in its own
// time.
//
// A restart on request ([Service.Restart]) starts a new process beside the running one. The request
// is stored in PIDFile: if this life ends before the restart, the next life carries it out. When the
// context ends and Leave returns true, the process keeps running. Otherwise Run stops it, and all
// earlier processes.
//
// Run must not be called concurrently. The other methods are safe for concurrent use.
type Lasting struct {
	Path        string   // absolute path of the program
	Args        []string // without the program's name
	Env         []string // the whole environment
	Dir         string
	Credential  *syscall.Credential // nil: the account of this process
	StopTimeout time.Duration       // default 20 s
	Log         io.Writer           // gets stdout and stderr; must not block for long
	// Confine is called with each process that is started or adopted. If it fails, it is called
	// again, at most every half minute. It may be nil: nothing is confined.
	Confine func(ctx context.Context, pid int) error
	// PIDFile is the file that records the processes, Pipe the named pipe for their output. Only
	// this account may be able to write to their directory.
	PIDFile, Pipe string
	// Tag returns a string without blanks that identifies the program and its configuration. A
	// process with another tag is not adopted.
	Tag func() (string, error)
	// Answers returns nil if the running process works well enough to be adopted. Lasting calls it
	// repeatedly for Patience (default 10 s), so that a healthy process survives on a busy machine.
	Answers  func(context.Context) error
	Patience time.Duration
	// Leave reports whether to leave the process running when the context ends. cause is the
	// context's cause. Leave may be nil: the process is stopped.
	Leave func(cause error) bool

	mu     sync.Mutex
	procs  []*lasting // the processes that live, oldest first
	known  bool       // whether PIDFile has been read
	failed bool       // the process of the last Run ended by itself
}

// Run implements [Runner]. started gets the ID of the process that was adopted or started.
func (l *Lasting) Run(ctx context.Context, started func(pid int)) error {
	drained, err := l.readPipe()
	if err != nil {
		return err
	}
	defer drained()

	p, err := l.obtain(ctx)
	if err != nil {
		return err
	}
	defer keepConfined(ctx, l.Confine, p.pid)()

	started(p.pid)
	select {
	case <-p.gone:
		l.mu.Lock()
		l.failed = true
		l.mu.Unlock()
		return p.err
	case <-ctx.Done():
	}

	cause := context.Cause(ctx)
	switch {
	case cause == errRestart:
		l.Renew()
	case l.Leave != nil && l.Leave(cause):
		l.release()
	default:
		l.stopAll()
	}

	return nil
}

// Alive reports whether a process of this Lasting runs, from this life or an earlier one.
func (l *Lasting) Alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loadList()
	return len(l.procs) > 0
}

// replaceTag is the tag of a process that is to be replaced. [Lasting.Tag] never returns it.
const replaceTag = "replace"

// Renew requests that the next Run, in this life or the next, starts a new process instead of
// adopting the present one. It may be called at any time, also when Run has returned.
func (l *Lasting) Renew() {
	l.mu.Lock()
	running := l.known
	l.loadList()
	if n := len(l.procs); n > 0 {
		l.procs[n-1].tag = replaceTag
		l.saveList()
	}
	l.mu.Unlock()

	if !running {
		l.release()
	}
}

// Stop ends all processes of a service that is no longer wanted.
func (l *Lasting) Stop() {
	l.mu.Lock()
	l.loadList()
	l.mu.Unlock()
	l.stopAll()
}

// obtain adopts the newest process or starts one.
func (l *Lasting) obtain(ctx context.Context) (*lasting, error) {
	tag, err := l.Tag()
	if err != nil {
		return nil, fmt.Errorf("identify %s: %w", l.Path, err)
	}

	l.mu.Lock()
	l.loadList()
	var newest *lasting
	adoptable := false
	if n := len(l.procs); n > 0 {
		newest = l.procs[n-1]
		adoptable = newest.tag == tag
	}

	failed := l.failed
	l.failed = false
	l.mu.Unlock()

	if newest != nil {
		answer := l.askUntilReady(ctx, newest)
		switch {
		case ctx.Err() != nil:
			// Leave the process as it is: the next life decides whether to adopt it.
			return newest, nil
		case answer == nil && adoptable:
			newest.inService = true
			return newest, nil
		case answer != nil && (newest.inService || failed || newest.adopted):
			// The process serves nobody, and would obstruct a new one.
			l.endAll(syscall.SIGKILL, 0)
		}
	}

	return l.startProcess(tag)
}

// askUntilReady calls Answers until the process answers or ends, or Patience has passed.
func (l *Lasting) askUntilReady(ctx context.Context, p *lasting) error {
	limit := l.Patience
	if limit <= 0 {
		limit = 10 * time.Second
	}

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := l.Answers(ctx)
		if err == nil {
			return nil
		}

		select {
		case <-p.gone:
			return err
		case <-ctx.Done():
			return err
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// startProcess starts a process.
func (l *Lasting) startProcess(tag string) (*lasting, error) {
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", l.Path, err)
	}
	defer unix.Close(null)

	// The pipe is open for reading too, so that writes of the process never fail with EPIPE. It is
	// non-blocking, so that without a reader the process never blocks.
	out, err := unix.Open(l.Pipe, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start %s: open its log pipe: %w", l.Path, err)
	}
	defer unix.Close(out)

	env := l.Env
	if env == nil {
		env = []string{}
	}

	pid, err := syscall.ForkExec(l.Path, append([]string{l.Path}, l.Args...), &syscall.ProcAttr{
		Dir:   l.Dir,
		Env:   env,
		Files: []uintptr{uintptr(null), uintptr(out), uintptr(out)},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Credential: l.Credential},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", l.Path, err)
	}

	st, err := statOf(pid)
	if err != nil {
		st.ticks = "-" // the process has ended already; watchEnd learns how
	}

	p := &lasting{pid: pid, ticks: st.ticks, tag: tag, inService: true}
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, o := range l.procs {
		o.inService = false
	}

	if err := p.watchEnd(func() { l.forget(p) }); err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return nil, fmt.Errorf("watch %s: %w", l.Path, err)
	}

	l.procs = append(l.procs, p)
	l.saveList()
	return p, nil
}

// forget removes a process that has ended from the list.
func (l *Lasting) forget(p *lasting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.procs = slices.DeleteFunc(l.procs, func(o *lasting) bool { return o == p })
	l.saveList()
}

// release stops watching all processes. The processes keep running.
func (l *Lasting) release() {
	l.mu.Lock()
	procs := l.procs
	l.procs, l.known = nil, false
	l.mu.Unlock()
	for _, p := range procs {
		p.unwatch()
	}
}

func (l *Lasting) stopAll() {
	limit := l.StopTimeout
	if limit <= 0 {
		limit = defaultStopTimeout
	}
	l.endAll(syscall.SIGTERM, limit)
}

// endAll sends a signal to all processes, and kills those that have not ended within limit.
func (l *Lasting) endAll(s syscall.Signal, limit time.Duration) {
	l.mu.Lock()
	procs := slices.Clone(l.procs)
	l.mu.Unlock()

	for _, p := range procs {
		p.signal(s)
	}

	t := time.NewTimer(limit)
	defer t.Stop()
	for _, p := range procs {
		select {
		case <-p.gone:
			continue
		case <-t.C:
			t.Reset(0) // the limit is over for the remaining processes
		}

		p.signal(syscall.SIGKILL)
		select {
		case <-p.gone:
		case <-time.After(staleWait):
		}
	}
}

// readPipe creates the pipe if necessary and copies its content to Log until the caller calls the
// returned function. That function copies the remaining content before it returns.
func (l *Lasting) readPipe() (func(), error) {
	fail := func(err error) (func(), error) {
		return nil, fmt.Errorf("log pipe %s: %w", l.Pipe, err)
	}
	if fi, err := os.Lstat(l.Pipe); err == nil && fi.Mode().Type() != os.ModeNamedPipe {
		if err := os.Remove(l.Pipe); err != nil {
			return fail(err)
		}
	}

	if err := unix.Mkfifo(l.Pipe, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return fail(err)
	}

	// Open for writing too, so that reading does not end when no process holds the pipe.
	f, err := os.OpenFile(l.Pipe, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return fail(err)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 64<<10)
		for {
			n, err := f.Read(b)
			if n > 0 && l.Log != nil {
				_, _ = l.Log.Write(b[:n])
			}
			if err != nil {
				return
			}
		}
	}()

	return func() {
		// Read what the pipe holds now, without waiting for more.
		_ = f.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		<-done
		_ = f.Close()
	}, nil
}

// saveList writes the list to PIDFile. It ignores a failure, which only keeps the next life from
// adopting the process. The caller holds l.mu.
func (l *Lasting) saveList() {
	if len(l.procs) == 0 {
		_ = os.Remove(l.PIDFile)
		return
	}
	var b []byte
	for _, p := range l.procs {
		b = fmt.Appendf(b, "%d %s %s\n", p.pid, p.ticks, p.tag)
	}
	_ = durable.Swap(l.PIDFile, b, 0o600)
}

// loadList reads the list from PIDFile, once. The caller holds l.mu.
func (l *Lasting) loadList() {
	if l.known {
		return
	}

	l.known = true
	f, err := os.Open(l.PIDFile)
	if err != nil {
		return
	}
	defer f.Close()

	for {
		p := &lasting{adopted: true}
		if _, err := fmt.Fscanln(f, &p.pid, &p.ticks, &p.tag); err != nil {
			if err == io.EOF || len(l.procs) > 64 {
				return
			}
			continue
		}

		st, err := statOf(p.pid)
		if err != nil || p.pid <= 1 || st.ticks != p.ticks {
			continue // the process has ended, or another one has its ID
		}

		if p.watchEnd(func() { l.forget(p) }) == nil {
			l.procs = append(l.procs, p)
		}
	}
}
