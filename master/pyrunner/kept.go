package pyrunner

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"saltern/internal/command"
	"saltern/master/internal/pyframe"
	"saltern/master/value"
)

//go:embed kept.py
var keptScript string

const (
	// maxKeptStart bounds how long a Python that is kept takes to import Salt.
	maxKeptStart = time.Minute
	// exitNoSalt is how it ends where Salt cannot be imported.
	exitNoSalt = 3
)

// Kept is a Python that answers one request after the other, so that Salt's library is
// imported once. It is used by one goroutine at a time. Close must be called.
type Kept struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *os.File
	done chan struct{} // closed when the process has ended
}

// KeptConfig of a Kept.
type KeptConfig struct {
	Pythons []string // to try, in this order: paths or names in PATH
	// Program defines a function that makes a reply of a request, both maps, and hands it
	// to serve, of kept.py, which it follows: frames ([pyframe]) come and go there.
	Program string
	Layer   string   // folder of packages, as [Layer] gives it
	Env     []string // nil: [command.PythonEnviron]
}

// Keep starts the first of the Pythons that has Salt; [ErrNoSalt] if none has.
func Keep(ctx context.Context, cfg KeptConfig) (*Kept, error) {
	env := cfg.Env
	if env == nil {
		env = command.PythonEnviron()
	}

	for _, name := range cfg.Pythons {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path) // it runs in another directory
		}

		if err != nil {
			continue
		}

		k, err := startKept(path, Arguments(keptScript+cfg.Program, cfg.Layer),
			append(env[:len(env):len(env)], "LC_ALL=C.UTF-8"))
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", path, err)
		}

		late := k.killAfter(ctx, maxKeptStart)
		_, err = pyframe.Read(k.out, 1<<10)
		late()
		if err == nil {
			return k, nil
		}

		if !errors.Is(err, io.EOF) { // it does not end by itself
			k.kill()
		}

		if code := k.Close(); code != exitNoSalt {
			return nil, fmt.Errorf("start %s: it ended with status %d before it had imported Salt: %w", path, code, err)
		}
	}

	return nil, fmt.Errorf("%w (tried %s)", ErrNoSalt, strings.Join(cfg.Pythons, ", "))
}

func startKept(path string, args, env []string) (*Kept, error) {
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = "/", env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal to our terminal is for us
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}

	// A pipe of our own: that of exec is closed when the process ends, read or not.
	out, theirs, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}

	cmd.Stdout = theirs
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		in.Close()
		out.Close()
		return nil, err
	}

	k := &Kept{cmd: cmd, in: in, out: out, done: make(chan struct{})}
	go func() { // until Close, which kills what does not end
		_ = cmd.Wait()
		close(k.done)
	}()

	return k, nil
}

// PID returns the process id.
func (k *Kept) PID() int { return k.cmd.Process.Pid }

// Alive reports whether the process still runs.
func (k *Kept) Alive() bool {
	select {
	case <-k.done:
		return false
	default:
		return true
	}
}

// Ask sends a request and waits for its answer, of at most so many bytes, until most has
// passed or ctx ends. After an error it can be closed only.
func (k *Kept) Ask(ctx context.Context, m *value.Map, bytes int, most time.Duration) (*value.Map, error) {
	frame, err := pyframe.Append(nil, m)
	if err != nil {
		return nil, fmt.Errorf("pack the request: %w", err)
	}
	defer k.killAfter(ctx, most)()

	if _, err := k.in.Write(frame); err != nil {
		return nil, fmt.Errorf("ask Python: %w", err)
	}

	packed, err := pyframe.Read(k.out, bytes)
	if err == nil {
		m, err = pyframe.Map(packed)
	}

	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if errors.Is(err, io.EOF) {
			err = fmt.Errorf("it ended, or took longer than %s", most)
		}
		return nil, fmt.Errorf("ask Python: %w", err)
	}

	return m, nil
}

// killAfter kills the Python and what it has started after a time, or when ctx ends,
// unless it is called off before.
func (k *Kept) killAfter(ctx context.Context, d time.Duration) (callOff func()) {
	late := time.AfterFunc(d, k.kill)
	gone := context.AfterFunc(ctx, k.kill)
	return func() { late.Stop(); gone() }
}

func (k *Kept) kill() {
	if k.Alive() {
		_ = syscall.Kill(-k.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// Close ends the Python, within five seconds, and gives its exit status.
func (k *Kept) Close() int {
	_ = k.in.Close()
	late := time.AfterFunc(5*time.Second, k.kill)
	<-k.done
	late.Stop()
	_ = k.out.Close()
	return k.cmd.ProcessState.ExitCode()
}
