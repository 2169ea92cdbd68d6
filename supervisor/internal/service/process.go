package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// A Runner runs something once. Run blocks until the work has ended by itself, or until ctx has
// ended and Run has stopped the work. After an end on request Run returns nil. Run calls started
// once, when the work runs, with the process ID of the work or 0.
type Runner interface {
	Run(ctx context.Context, started func(pid int)) error
}

// Process is a [Runner] for a child process. The child leads its own process group and gets SIGTERM
// from the kernel when this process dies.
//
// When the context ends, only the child gets SIGTERM, so that it can stop its own children in its
// own order. After StopTimeout, and always after the child has ended, Process kills the rest of the
// group; after the end also what KillRest finds.
type Process struct {
	Path        string   // absolute path of the program
	Args        []string // without the program's name
	Env         []string // the whole environment; nothing is inherited
	Dir         string
	Credential  *syscall.Credential // nil: the account of this process
	StopTimeout time.Duration       // default 20 s
	Log         io.Writer           // gets stdout and stderr; must not block for long
	// Confine is called with each child right after its start. If it fails, it is called again, at
	// most every half minute. It may be nil: nothing is confined.
	Confine func(ctx context.Context, pid int) error
	// KillRest is called with each child right after its end, and by KillStale. It kills what the child has left behind
	// outside of its process group, and bounds its time itself. It may be nil.
	KillRest func(pid int)
	// PIDFile is the file that records the child, so that KillStale can find the child after this
	// process has died. Empty: the child is not recorded. Only this account may be able to write to
	// the file's directory.
	PIDFile string
}

// ExitError describes how a process ended by itself.
type ExitError struct {
	Code   int    // exit code of the process; -1: a signal ended it
	Signal string // name of the signal that ended the process; empty: none
}

// Error returns a text for people that says how the process ended.
func (e *ExitError) Error() string {
	if e.Signal != "" {
		return "killed by " + e.Signal
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

const defaultStopTimeout = 20 * time.Second

// Run implements [Runner]. It keeps its operating system thread for the whole life of the child,
// because Linux binds the parent death signal to the thread that started the child, not to the
// process.
func (p *Process) Run(ctx context.Context, started func(pid int)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = p.Env
	if cmd.Env == nil {
		cmd.Env = []string{}
	}

	cmd.Dir = p.Dir
	cmd.Stdout, cmd.Stderr = p.Log, p.Log
	cmd.WaitDelay = 2 * time.Second // a grandchild may hold the pipe open
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:    true,
		Pdeathsig:  syscall.SIGTERM,
		Credential: p.Credential,
	}

	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Path, err)
	}

	pid := cmd.Process.Pid
	p.remember(pid)
	defer keepConfined(ctx, p.Confine, pid)()

	defer p.forget()
	started(pid)

	ended := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ended:
		case <-ctx.Done():
			_, hung := errors.AsType[*hangError](context.Cause(ctx))
			p.stopProcess(cmd.Process, ended, hung)
		}
	}()

	err := cmd.Wait()
	close(ended)
	<-stopped
	killGroup(pid)
	if p.KillRest != nil {
		p.KillRest(pid)
	}

	if ctx.Err() != nil {
		return nil
	}

	return exitError(err)
}

func (p *Process) stopProcess(proc *os.Process, ended <-chan struct{}, hung bool) {
	limit := p.StopTimeout
	if limit <= 0 {
		limit = defaultStopTimeout
	}

	if hung {
		// A hung run gets less time to stop.
		limit = min(limit, 5*time.Second)
	}

	_ = proc.Signal(syscall.SIGTERM)
	t := time.NewTimer(limit)
	defer t.Stop()

	select {
	case <-ended:
	case <-t.C:
		killGroup(proc.Pid)
	}
}

// killGroup kills the rest of a process group. The group ID stays reserved while any member lives.
// killGroup can hit another process only if the group is already empty and the kernel has used the
// ID again between the child's end and this call.
func killGroup(pgid int) { _ = syscall.Kill(-pgid, syscall.SIGKILL) }

func exitError(err error) error {
	var ee *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return &ExitError{Code: 0}
	case errors.As(err, &ee):
		if ws, ok := ee.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return &ExitError{Code: -1, Signal: signalName(ws.Signal())}
		}
		return &ExitError{Code: ee.ExitCode()}
	}
	return err
}

func signalName(s syscall.Signal) string {
	names := map[syscall.Signal]string{
		syscall.SIGKILL: "SIGKILL (out of memory, or by hand)", syscall.SIGSEGV: "SIGSEGV", syscall.SIGABRT: "SIGABRT",
		syscall.SIGTERM: "SIGTERM", syscall.SIGINT: "SIGINT", syscall.SIGHUP: "SIGHUP", syscall.SIGPIPE: "SIGPIPE",
		syscall.SIGBUS: "SIGBUS", syscall.SIGILL: "SIGILL", syscall.SIGSYS: "SIGSYS (refused system call)",
	}
	if n, ok := names[s]; ok {
		return n
	}
	return s.String()
}
