// Package command runs programs of the machine to their end, within bounds: of
// time, of what they say, and of what they leave behind when they are stopped.
// It imports nothing of ours.
//
// Programs that live as long as we do, such as a master or a helper that is
// asked again and again, belong to those who keep them.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"saltern/internal/printable"
)

// Output is the output of a command, and its end.
type Output struct {
	Stdout []byte
	Stderr []byte
	Exit   int // -1: a signal ended it
}

// maxText bounds a command's output in an error.
const maxText = 500

// Err returns nil after an exit status of 0, else an error with the command's output, on one
// line, and its exit status.
func (o Output) Err() error {
	if o.Exit == 0 {
		return nil
	}
	end := fmt.Sprintf("exit status %d", o.Exit)
	if o.Exit < 0 {
		end = "ended by a signal"
	}
	text := printable.Brief(string(o.Stderr)+" "+string(o.Stdout), maxText)
	if text == "" {
		return errors.New(end)
	}
	return fmt.Errorf("%s (%s)", text, end)
}

// Runner runs one command to its end. An error means that the command could
// not be run, was stopped at its deadline, or said more than is accepted; a
// command that ran and failed is an Output with its exit status, see
// [Output.Err]. Run must return soon after ctx ends, and may be called by
// several goroutines.
type Runner interface {
	Run(ctx context.Context, argv []string) (Output, error)
}

// Do runs a command and returns its output. It returns an error if the command fails, too.
func Do(ctx context.Context, r Runner, argv ...string) ([]byte, error) {
	out, err := r.Run(ctx, argv)
	if err == nil {
		err = out.Err()
	}
	return out.Stdout, err
}

// ErrTimeout is in the chain of an error of a command that was stopped at its deadline. Work that
// it has delegated to others goes on.
var ErrTimeout = errors.New("stopped at its deadline")

// ErrOutput is in the chain of an error of a command that wrote too much.
var ErrOutput = errors.New("wrote more than is accepted")

// PythonEnviron returns this process's environment for a Python with Salt's
// library: without what a service manager meant for this process alone, and
// without what would make Python import code from elsewhere.
func PythonEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "NOTIFY_SOCKET" || strings.HasPrefix(name, "LISTEN_") ||
			strings.HasPrefix(name, "WATCHDOG_") || strings.HasPrefix(name, "PYTHON")
	})
}

// Exec runs commands as child processes, each in a process group of its own,
// in the root directory and with LC_ALL=C.
type Exec struct {
	// Path of the program, if that is not the first of argv.
	Path string
	// Limit is the time for a command, in addition to the deadline of its context. 0 means no
	// limit.
	Limit time.Duration
	// MaxOutput is how many bytes of each stream are accepted, of standard error
	// at most 64 KiB; 0 means 8 MiB. More than that on standard output stops the
	// command, or is left out with Cut.
	MaxOutput int
	Cut       bool
	// Env replaces the environment of the child. It may be nil: PATH and HOME of this process.
	// Run always adds LC_ALL=C, and the variables of Add.
	Env, Add []string
	// Credential is the account of the child. It may be nil: our own.
	Credential *syscall.Credential
	// Stdin is the input of the child.
	Stdin string
	// Tee also gets the child's standard output as it comes, TeeErr its standard error. Both may
	// be nil. One goroutine writes to each, until Run ends or a little longer.
	Tee, TeeErr io.Writer
}

// Run implements [Runner]. At the end of ctx or of the time limit it kills the whole process
// group. It does not wait for a child that still does not end (a process inside a hanging file
// system call): a goroutine does. After an error the Output has what the command has written so
// far.
func (e Exec) Run(ctx context.Context, argv []string) (Output, error) {
	if len(argv) == 0 {
		return Output{}, errors.New("no command")
	}

	if e.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.Limit)
		defer cancel()
	}

	limit := e.MaxOutput
	if limit <= 0 {
		limit = 8 << 20
	}

	full := make(chan struct{}, 1)
	stdout, stderr := &bounded{left: limit, full: full}, &bounded{left: min(limit, 64<<10)}
	if e.Cut {
		stdout.full = nil
	}

	cmd := e.command(argv)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if e.Tee != nil {
		cmd.Stdout = io.MultiWriter(stdout, e.Tee)
	}

	if e.TeeErr != nil {
		cmd.Stderr = io.MultiWriter(stderr, e.TeeErr)
	}

	if err := cmd.Start(); err != nil {
		return Output{}, fmt.Errorf("start %s: %w", argv[0], err)
	}

	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()

	var err, cause error
	select {
	case err = <-done:
		if len(full) > 0 { // that came at the same time
			cause = ErrOutput
		}
	case <-ctx.Done():
		cause = ErrTimeout
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cause = ctx.Err()
		}
		killGroup(cmd, done)
	case <-full:
		cause = ErrOutput
		killGroup(cmd, done)
	}

	out := Output{Stdout: stdout.takeAll(), Stderr: stderr.takeAll(), Exit: -1}
	if cause == nil && !ended(err) {
		cause = err
	}
	if cause != nil {
		return out, fmt.Errorf("run %s: %w", strings.Join(argv, " "), cause)
	}

	out.Exit = cmd.ProcessState.ExitCode()
	return out, nil
}

// ended reports whether an error of Wait means that the command has ended by itself.
func ended(err error) bool {
	_, exited := errors.AsType[*exec.ExitError](err)
	return err == nil || exited || errors.Is(err, exec.ErrWaitDelay)
}

// killGroup ends a command with all that it has started, and waits a moment for that.
func killGroup(cmd *exec.Cmd, done <-chan error) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group may be gone already
	select {
	case <-done:
	case <-time.After(2 * time.Second):
	}
}

func (e Exec) command(argv []string) *exec.Cmd {
	path := e.Path
	if path == "" {
		path = argv[0]
	}

	env := e.Env
	if env == nil {
		env = []string{"PATH=" + searchPath(), "HOME=" + os.Getenv("HOME")}
	}

	cmd := exec.Command(path)
	cmd.Args = argv
	cmd.Env = append(append(slices.Clone(env), "LC_ALL=C"), e.Add...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: e.Credential}
	cmd.WaitDelay = time.Second // a grandchild may hold the pipes open

	if e.Stdin != "" {
		cmd.Stdin = strings.NewReader(e.Stdin)
	}

	return cmd
}

func searchPath() string {
	if p := os.Getenv("PATH"); p != "" {
		return p
	}
	return "/usr/sbin:/usr/bin:/sbin:/bin"
}

// bounded keeps the first bytes of a stream.
type bounded struct {
	mu   sync.Mutex
	text []byte
	left int
	full chan struct{} // gets a word when there is more; nil: the rest is left out
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	keep := p[:min(len(p), b.left)]
	b.text = append(b.text, keep...)
	b.left -= len(keep)
	if len(keep) < len(p) && b.full != nil {
		select {
		case b.full <- struct{}{}:
		default:
		}
	}
	return len(p), nil
}

// takeAll returns what was kept, and keeps nothing from then on.
func (b *bounded) takeAll() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.text
	b.text = nil
	b.left = 0
	b.full = nil
	return text
}
