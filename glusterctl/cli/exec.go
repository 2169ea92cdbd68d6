package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Output is what a command said.
type Output struct {
	Stdout []byte
	Stderr []byte
	Exit   int
}

// Runner runs one command to its end. An error means that the command could
// not be run, was stopped at its deadline, or said more than is accepted; a
// command that ran and failed is an Output with its exit status. Run must
// return soon after ctx ends, and may be called by several goroutines.
type Runner interface {
	Run(ctx context.Context, argv []string) (Output, error)
}

// ErrTimeout is in the chain of an error of a command that was stopped at its
// deadline. What it was doing inside glusterd goes on there.
var ErrTimeout = errors.New("stopped at its deadline")

// ErrOutput is in the chain of an error of a command that wrote too much.
var ErrOutput = errors.New("wrote more than is accepted")

// Exec runs commands as child processes, each in a process group of its own,
// without standard input and with LC_ALL=C.
type Exec struct {
	// MaxOutput is how many bytes of each stream are accepted; 0 means 8 MiB.
	MaxOutput int
	// Env replaces the environment of the child; nil means PATH and HOME of
	// this process. LC_ALL=C is always added.
	Env []string
}

// Run implements [Runner]. When ctx ends the whole process group is killed;
// Run does not wait for a child that even then does not go away (a process
// inside a hanging file system call), a goroutine does.
func (e Exec) Run(ctx context.Context, argv []string) (Output, error) {
	if len(argv) == 0 {
		return Output{}, errors.New("no command")
	}
	limit := e.MaxOutput
	if limit <= 0 {
		limit = 8 << 20
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	env := e.Env
	if env == nil {
		env = []string{"PATH=" + path(), "HOME=" + os.Getenv("HOME")}
	}
	cmd.Env = append(slices.Clone(env), "LC_ALL=C")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	full := make(chan struct{}, 2)
	stdout, stderr := &bounded{left: limit, full: full}, &bounded{left: min(limit, 64<<10), full: full, drop: true}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return Output{}, fmt.Errorf("start %s: %w", argv[0], err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()

	var err, cause error
	select {
	case err = <-done:
	case <-ctx.Done():
		cause = ErrTimeout
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cause = ctx.Err()
		}
	case <-full:
		cause = ErrOutput
	}
	if cause != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group may be gone already
		select {
		case <-done:
		case <-time.After(2 * time.Second):
		}
		return Output{}, fmt.Errorf("run %s: %w", strings.Join(argv, " "), cause)
	}
	out := Output{Stdout: stdout.bytes(), Stderr: stderr.bytes(), Exit: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return out, fmt.Errorf("run %s: %w", strings.Join(argv, " "), err)
	}
	return out, nil
}

func path() string {
	if p := os.Getenv("PATH"); p != "" {
		return p
	}
	return "/usr/sbin:/usr/bin:/sbin:/bin"
}

// bounded keeps the first bytes of a stream and says when there were more.
type bounded struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	left int
	drop bool // what is too much is left out instead of being a fault
	full chan<- struct{}
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	keep := p[:min(len(p), b.left)]
	b.buf.Write(keep)
	b.left -= len(keep)
	if len(keep) < len(p) && !b.drop {
		select {
		case b.full <- struct{}{}:
		default:
		}
	}
	return len(p), nil
}

func (b *bounded) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.buf.Bytes())
}
