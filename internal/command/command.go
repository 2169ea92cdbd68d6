// Package command runs programs of the machine until they end. It bounds their time and their
// output, and kills the processes that a stopped program leaves behind. It imports nothing of ours.
//
// Programs that live as long as this process, such as a master or a helper that answers many
// requests, are started by the packages that use them, not by this package.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"saltern/internal/printable"
)

// Output is the output and the exit status of a command.
type Output struct {
	Stdout []byte
	Stderr []byte
	Exit   int // exit status; -1: a signal ended the command
}

// leftBehindTakes is how long, beyond the limit of a command with AllOutput, a process that it has left
// behind counts as a part of it.
const leftBehindTakes = time.Minute

// maxText bounds how much of a command's output an error quotes, in bytes.
const maxText = 500

// Err returns nil after an exit status of 0, otherwise an error of one line with the exit status and
// the command's output.
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

// Runner runs one command until it ends. An error means that the command could not be run, was
// stopped at its deadline, or wrote more than is accepted. A command that ran and failed is an Output
// with its exit status, see [Output.Err]. Run must return soon after ctx ends, and may be called by
// several goroutines.
type Runner interface {
	Run(ctx context.Context, argv []string) (Output, error)
}

// Do runs a command and returns its standard output. If the command ran and failed, Do returns an
// error.
func Do(ctx context.Context, r Runner, argv ...string) ([]byte, error) {
	out, err := r.Run(ctx, argv)
	if err == nil {
		err = out.Err()
	}
	return out.Stdout, err
}

// ErrTimeout is wrapped by the error of a command that was stopped at its deadline. Work that the
// command had delegated to other processes continues.
var ErrTimeout = errors.New("stopped at its deadline")

// ErrOutput is wrapped by the error of a command that wrote too much.
var ErrOutput = errors.New("wrote more than is accepted")

// PythonEnviron returns the environment for a Python with Salt's library: this process's
// environment without two kinds of variables. It omits variables that a service manager sets for
// this process alone, and variables with which Python imports code from other folders.
func PythonEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "NOTIFY_SOCKET" || strings.HasPrefix(name, "LISTEN_") ||
			strings.HasPrefix(name, "WATCHDOG_") || strings.HasPrefix(name, "PYTHON")
	})
}

// Exec runs commands as child processes, each in its own process group and with LC_ALL=C.
type Exec struct {
	// Path is the path of the program, if it differs from the first of argv.
	Path string
	// Limit is the time for a command, in addition to the deadline of its context. 0 means no
	// limit.
	Limit time.Duration
	// MaxOutput bounds the bytes of standard output (0: 8 MiB). A command that writes more is
	// stopped. With Cut it continues, and the rest of its output is dropped. Of standard error at
	// most 64 KiB are kept.
	MaxOutput int
	Cut       bool
	// Env is the environment of the child. It may be nil: the child gets PATH and HOME of this
	// process. Run always adds LC_ALL=C and the variables of Add.
	Env, Add []string
	// Credential is the account of the child. It may be nil: the account of this process.
	Credential *syscall.Credential
	// Nice is how much less than this process the child counts for the scheduler, 0 to 19.
	Nice int
	// Stdin is the input of the child.
	Stdin string
	// Dir is the working directory of the child; "": the root directory.
	Dir string
	// MergeStderr adds standard error to standard output, in the order in which the child writes.
	MergeStderr bool
	// AllOutput waits until no process holds the child's output any more, even if the child has ended
	// and left others behind. A Limit must be set.
	AllOutput bool
	// EndsWithUs has the kernel kill the child when this process dies. It holds a thread while the
	// child runs.
	EndsWithUs bool
	// Ended is called once in each Run, when the child has ended and nobody holds its output, or has not
	// started. That may be after Run has returned. It may be nil.
	Ended func()
	// Tee receives the child's standard output while it is written, and TeeErr its standard error.
	// Both may be nil. One goroutine writes to each, and may write for a moment after Run has
	// returned.
	Tee, TeeErr io.Writer
}

// Run implements [Runner]. When ctx or the time limit ends, it kills the whole process group. If
// the child still does not end (because a file system call hangs), Run returns, and a goroutine
// waits for the child. After an error the Output contains what the command wrote before the error.
func (e Exec) Run(ctx context.Context, argv []string) (Output, error) {
	ended := e.Ended
	if ended == nil {
		ended = func() {}
	}
	if len(argv) == 0 {
		ended()
		return Output{}, errors.New("no command")
	}
	if e.EndsWithUs { // the child dies with the thread that starts it
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}

	if e.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.Limit)
		defer cancel()
	}

	cmd := e.command(argv)
	full := make(chan struct{}, 1)
	stdout, stderr := e.keepOutput(cmd, full)
	if err := cmd.Start(); err != nil {
		ended()
		return Output{}, fmt.Errorf("start %s: %w", argv[0], err)
	}
	LowerPriority(cmd.Process.Pid, e.Nice)

	done := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		ended()
		done <- err
	}()

	var err, cause error
	select {
	case err = <-done:
		if len(full) > 0 { // the command wrote too much before it ended
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

	out := Output{Stdout: stdout.Take(), Stderr: stderr.Take(), Exit: -1}
	if cause == nil && !endedByItself(err) {
		cause = err
	}
	if cause != nil {
		return out, fmt.Errorf("run %s: %w", strings.Join(argv, " "), cause)
	}

	out.Exit = cmd.ProcessState.ExitCode()
	return out, nil
}

// keepOutput connects a command to what keeps its output. full gets a value when there is too much.
func (e Exec) keepOutput(cmd *exec.Cmd, full chan struct{}) (stdout, stderr *Head) {
	limit := e.MaxOutput
	if limit <= 0 {
		limit = 8 << 20
	}

	stdout, stderr = &Head{left: limit, full: full}, NewHead(min(limit, 64<<10))
	if e.Cut {
		stdout.full = nil
	}

	cmd.Stdout, cmd.Stderr = stdout, stderr
	if e.Tee != nil {
		cmd.Stdout = io.MultiWriter(stdout, e.Tee)
	}
	if e.TeeErr != nil {
		cmd.Stderr = io.MultiWriter(stderr, e.TeeErr)
	}
	if e.MergeStderr {
		cmd.Stderr = cmd.Stdout
	}
	return stdout, stderr
}

// endedByItself reports whether an error of Wait means that the command has ended by itself.
func endedByItself(err error) bool {
	_, exited := errors.AsType[*exec.ExitError](err)
	return err == nil || exited || errors.Is(err, exec.ErrWaitDelay)
}

// killGroup kills a command and all processes of its group, and waits up to two seconds for the
// command's end.
func killGroup(cmd *exec.Cmd, done <-chan error) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group may have ended
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
	cmd.Dir = cmp.Or(e.Dir, "/")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: e.Credential}
	cmd.WaitDelay = time.Second // a grandchild may keep the pipes open
	if e.AllOutput {
		cmd.WaitDelay = e.Limit + leftBehindTakes
	}
	if e.EndsWithUs {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}

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

// Head is a writer that keeps the first bytes of a stream and drops the rest. It is safe for
// concurrent use.
type Head struct {
	mu   sync.Mutex
	text []byte
	left int
	full chan struct{} // gets a value when the stream is longer; may be nil
}

// NewHead returns a writer that keeps up to limit bytes.
func NewHead(limit int) *Head { return &Head{left: limit} }

// Write implements [io.Writer]. It never fails.
func (b *Head) Write(p []byte) (int, error) {
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

// Take returns the bytes kept so far. The writer keeps no bytes after that.
func (b *Head) Take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.text
	b.text = nil
	b.left = 0
	b.full = nil
	return text
}
