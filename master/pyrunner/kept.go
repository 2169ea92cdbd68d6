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
	// exitNoSalt is the exit code of kept.py when it cannot import Salt.
	exitNoSalt = 3
)

// Kept is a Python process that answers one request after another, so that it imports Salt's
// library only once. Only one goroutine at a time may use it. The last user must call Close.
type Kept struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *os.File
	done chan struct{} // closed when the process has ended
}

// KeptConfig configures a Kept.
type KeptConfig struct {
	Pythons []string // interpreters in the order in which to try them: paths, or names in PATH
	// Program is Python code that defines a function and passes this function to serve of kept.py.
	// The function gets a request and returns a reply, both of them maps. Keep puts kept.py before
	// Program. serve exchanges frames ([pyframe]).
	Program string
	Layer   string   // folder of packages, as returned by [Layer]
	Env     []string // environment of the process; nil: the environment of [command.PythonEnviron]
}

// Keep starts the first interpreter that finds Salt's library. It returns [ErrNoSalt] if none does.
func Keep(ctx context.Context, cfg KeptConfig) (*Kept, error) {
	env := cfg.Env
	if env == nil {
		env = command.PythonEnviron()
	}

	for _, name := range cfg.Pythons {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path) // absolute, since the process runs in another directory
		}

		if err != nil {
			continue
		}

		k, err := startKept(path, Arguments(keptScript+cfg.Program, cfg.Layer),
			append(env[:len(env):len(env)], "LC_ALL=C.UTF-8"))
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", path, err)
		}

		// Python may take this long to import Salt.
		late := k.killAfter(ctx, time.Minute)
		_, err = pyframe.Read(k.out, 1<<10)
		late()
		if err == nil {
			return k, nil
		}

		if !errors.Is(err, io.EOF) { // the process does not end by itself, so kill it
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
	// Start the process in a new process group: signals from the terminal must not reach the
	// process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}

	// Create the pipe here: package exec would close its own pipe when the process ends, even with
	// unread data in it.
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
	go func() { // this goroutine ends at the latest with Close, which kills a process that does not end
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

// Ask sends a request and waits for its answer, of at most maxBytes bytes, until limit has passed
// or ctx ends. After an error the caller must not use k again except to call Close.
func (k *Kept) Ask(ctx context.Context, m *value.Map, maxBytes int, limit time.Duration) (*value.Map, error) {
	frame, err := pyframe.Append(nil, m)
	if err != nil {
		return nil, fmt.Errorf("pack the request: %w", err)
	}
	defer k.killAfter(ctx, limit)()

	if _, err := k.in.Write(frame); err != nil {
		return nil, fmt.Errorf("ask Python: %w", err)
	}

	packed, err := pyframe.Read(k.out, maxBytes)
	if err == nil {
		m, err = pyframe.Map(packed)
	}

	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if errors.Is(err, io.EOF) {
			err = fmt.Errorf("it ended, or took longer than %s", limit)
		}
		return nil, fmt.Errorf("ask Python: %w", err)
	}

	return m, nil
}

// killAfter kills the process and its children after d, or when ctx ends. The returned function
// cancels the killing.
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

// Close ends the process within five seconds, by killing it if necessary, and returns its exit
// status.
func (k *Kept) Close() int {
	_ = k.in.Close()
	late := time.AfterFunc(5*time.Second, k.kill)
	<-k.done
	late.Stop()
	_ = k.out.Close()
	return k.cmd.ProcessState.ExitCode()
}
