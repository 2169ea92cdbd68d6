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
	// exitNoSalt is its exit code when Salt cannot be imported.
	exitNoSalt = 3
)

// Kept is a Python process that answers one request after the other, so that Salt's library is
// imported only once. One goroutine at a time uses it. Close must be called.
type Kept struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *os.File
	done chan struct{} // closed when the process has ended
}

// KeptConfig configures a Kept.
type KeptConfig struct {
	Pythons []string // to try, in this order: paths or names in PATH
	// Program defines a function that converts a request into a reply, both maps, and passes it to
	// serve of kept.py, which is prepended. serve exchanges frames ([pyframe]).
	Program string
	Layer   string   // folder of packages, as returned by [Layer]
	Env     []string // may be nil: [command.PythonEnviron]
}

// Keep starts the first interpreter that has Salt. It returns [ErrNoSalt] if none has.
func Keep(ctx context.Context, cfg KeptConfig) (*Kept, error) {
	env := cfg.Env
	if env == nil {
		env = command.PythonEnviron()
	}

	for _, name := range cfg.Pythons {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path) // absolute: the process runs in another directory
		}

		if err != nil {
			continue
		}

		k, err := startKept(path, Arguments(keptScript+cfg.Program, cfg.Layer),
			append(env[:len(env):len(env)], "LC_ALL=C.UTF-8"))
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", path, err)
		}

		// Python must import Salt in this time.
		late := k.killAfter(ctx, time.Minute)
		_, err = pyframe.Read(k.out, 1<<10)
		late()
		if err == nil {
			return k, nil
		}

		if !errors.Is(err, io.EOF) { // kill it, since it does not end by itself
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it must not get the signals of our terminal
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}

	// Use a pipe of our own: exec would close its pipe when the process ends, even with unread
	// data.
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

// Ask sends a request and waits for its answer of at most that many bytes, until most has passed or
// ctx ends. After an error only Close may be called.
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

// killAfter kills the Python and its children after a time, or when ctx ends. callOff cancels that.
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

// Close ends the Python within five seconds and returns its exit status.
func (k *Kept) Close() int {
	_ = k.in.Close()
	late := time.AfterFunc(5*time.Second, k.kill)
	<-k.done
	late.Stop()
	_ = k.out.Close()
	return k.cmd.ProcessState.ExitCode()
}
