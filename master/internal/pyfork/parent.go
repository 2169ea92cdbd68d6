package pyfork

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/command"
	"saltern/master/internal/pyframe"
	"saltern/master/value"
)

// Prelude is the Python code with which a parent's program begins: frames, logging, and control of
// processes.
//
//go:embed prelude.py
var Prelude string

// boot reads the program from standard input, so that no file is needed. Nothing of what a program
// imports is garbage: to look for it meanwhile takes a seventh of the start. freeze_loaded in
// prelude.py begins to collect.
const boot = `import gc,struct,os
gc.disable()
def r(n):
    b=b""
    while len(b)<n:
        p=os.read(0,n-len(b))
        if not p: os._exit(1)
        b+=p
    return b
s=r(struct.unpack(">I",r(4))[0])
exec(compile(s,"saltern","exec"),{"__name__":"__main__"})`

const (
	// maxMessage bounds a message on the control socket, in bytes.
	maxMessage = 16 << 10
	// logTakes is how long the log is still read after a parent has ended. Processes that the
	// parent started may keep the pipe open longer.
	logTakes = time.Second
	// oomScore is the OOM score adjustment of parents and workers. When memory is short, the kernel
	// kills them before the master. The master starts them again.
	oomScore = "300"
	// exitNoSalt is the exit status of a program that cannot import Salt's library.
	exitNoSalt = 3
)

// Errors of a Python process that does not start up.
var (
	// ErrNoSalt means that the Python does not have Salt's library.
	ErrNoSalt = errors.New("it cannot import salt")
	// ErrCut means that the process could not be started, or ended before it was ready, because the
	// host lacked memory or processes, or because the process was too slow. Another start may
	// succeed.
	ErrCut = errors.New("it was cut short")
	// ErrSlow means that the process still made progress when its time was up: it did not hang. Such an error is an
	// ErrCut as well.
	ErrSlow = errors.New("its start took too long")
)

// Config configures a parent.
type Config struct {
	Python   string     // path of the interpreter, or its name in PATH
	Program  string     // Python code, which must begin with Prelude
	Settings *value.Map // settings that the program reads with receive_settings
	Env      []string   // environment of the process
	// StartTimeout bounds the time until the parent reports that it is ready. One that still computes then,
	// because others use the processors, gets up to ten times as long.
	StartTimeout time.Duration
	Nice         int // how much less than this process the parent and its workers count for the scheduler
	// Name is the purpose of the parent in log records, such as "renderer".
	Name string
	Log  *slog.Logger
}

// Message is a message from a parent on its control socket. Op determines which other fields are set.
type Message struct {
	Op     string `json:"op"` // "ready" or "failed" in the first message; the program defines later values
	Error  string `json:"error"`
	Salt   string `json:"salt"` // version of Salt's library
	Worker int64  `json:"worker"`
	Status int    `json:"status"` // status of a worker's end, as returned by os.waitpid
}

// Parent is a running Python process. Order, Alive and Stop may be called concurrently.
type Parent struct {
	Salt string // version of Salt's library

	command *exec.Cmd
	control *net.UnixConn
	done    chan struct{} // closed when the process and its log output have ended
}

// Start starts a Python process and waits until the process is ready. The caller must call Stop.
func Start(ctx context.Context, cfg Config) (*Parent, error) {
	path, err := exec.LookPath(cfg.Python)
	if err == nil {
		path, err = filepath.Abs(path) // absolute, because the process runs in another directory
	}

	if err != nil {
		return nil, fmt.Errorf("find %s: %w", cfg.Python, err)
	}

	settings, err := pyframe.Pack(cfg.Settings)
	if err != nil {
		return nil, fmt.Errorf("pack the settings of the %s: %w", cfg.Name, err)
	}

	ours, theirs, err := SocketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, fmt.Errorf("make the control socket of the %s: %w", cfg.Name, err)
	}

	p := &Parent{
		command: exec.Command(path, "-I", "-c", boot),
		control: ours,
		done:    make(chan struct{}),
	}

	log, err := p.launch(cfg, settings, theirs)
	theirs.Close() // so that the master's end of the pipe notices the end of the process
	if err != nil {
		ours.Close()
		if command.MayStartLater(err) {
			err = fmt.Errorf("%w: %w", ErrCut, err)
		}
		return nil, fmt.Errorf("start %s: %w", path, err)
	}

	go p.waitForEnd(log, cfg) // runs until the process ends; Stop waits for that

	if err := p.awaitReady(ctx, cfg.StartTimeout); err != nil {
		p.Stop(time.Second)
		state := p.command.ProcessState
		switch {
		case state.ExitCode() == exitNoSalt:
			err = ErrNoSalt
		case errors.Is(err, errNotReady) && wasKilled(state):
			err = fmt.Errorf("%w: %w", ErrCut, err)
		}

		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return p, nil
}

// wasKilled reports whether a process was killed from outside: by the kernel for lack of memory, or
// by Stop. (A program that crashes ends by another signal.)
func wasKilled(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && (status.Signal() == syscall.SIGKILL || status.Signal() == syscall.SIGTERM)
}

// launch starts the process and returns its standard error.
func (p *Parent) launch(cfg Config, settings []byte, control *os.File) (*os.File, error) {
	input := make([]byte, 0, len(cfg.Program)+len(settings)+8)
	for _, part := range []string{cfg.Program, string(settings)} {
		input = binary.BigEndian.AppendUint32(input, uint32(len(part)))
		input = append(input, part...)
	}

	// The pipe is created here, because exec would close its own pipe when the process ends, even
	// if the pipe still contains data.
	log, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()

	c := p.command
	c.Dir = "/"
	c.Env = cfg.Env
	c.Stdin = strings.NewReader(string(input))
	c.Stderr = theirs
	c.ExtraFiles = []*os.File{control}

	// The process gets a new process group, so that a signal from the master's terminal reaches
	// only the master, and all processes of a group that hangs can be killed together.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = logTakes
	if err := c.Start(); err != nil {
		log.Close()
		return nil, err
	}

	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", c.Process.Pid), []byte(oomScore), 0)
	command.LowerPriority(c.Process.Pid, cfg.Nice)
	return log, nil
}

// waitForEnd logs the process's output until the process ends.
func (p *Parent) waitForEnd(log *os.File, cfg Config) {
	defer close(p.done)
	defer log.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		relayLog(log, cfg.Name, cfg.Log)
	}()

	if err := p.command.Wait(); err != nil {
		cfg.Log.Debug("the "+cfg.Name+" process ended", "error", err)
	}
	_ = log.SetReadDeadline(time.Now().Add(logTakes))
	<-read
}

// errNotReady means that a parent did not report in time that it is ready.
var errNotReady = errors.New("it did not become ready")

// awaitReady waits for the parent's first message, by which the parent reports that it is ready. A start that
// makes progress is slow and has not failed: see stillStarts.
func (p *Parent) awaitReady(ctx context.Context, timeout time.Duration) error {
	defer context.AfterFunc(ctx, func() { _ = p.control.SetReadDeadline(time.Unix(1, 0)) })()

	began := time.Now()
	var used time.Duration
	for {
		_ = p.control.SetReadDeadline(time.Now().Add(timeout))
		if ctx.Err() != nil { // the deadline above may have replaced that of AfterFunc
			return ctx.Err()
		}

		m, err := p.Receive()
		before := used
		used = processorTime(p.PID())
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded) && stillStarts(before, used, time.Since(began), timeout):
			continue
		case errors.Is(err, os.ErrDeadlineExceeded) && progresses(before, used, timeout):
			return fmt.Errorf("%w: %w: %w", errNotReady, ErrSlow, err)
		case err != nil:
			return fmt.Errorf("%w: %w", errNotReady, err)
		case m.Op != "ready":
			return errors.New(m.Error)
		}

		p.Salt = m.Salt
		return p.control.SetReadDeadline(time.Time{})
	}
}

// stillStarts reports whether a process that is not ready goes on with its start and has time left for it.
func stillStarts(before, used, passed, timeout time.Duration) bool {
	const longest = 10 // times timeout, for a start that goes on
	return progresses(before, used, timeout) && passed < longest*timeout
}

// progresses reports whether a process that is not ready goes on with its start: on a machine with more work
// than processors it computes little in each timeout, but it computes. One that waits for something does
// not, and one in an endless loop has used more than a start takes. before and used are the processor times
// of the process when timeout began and when it ended.
func progresses(before, used, timeout time.Duration) bool {
	const progress = 1000 // a start that goes on computes this fraction of timeout
	return used-before >= timeout/progress && used < timeout/2
}

// processorTime returns how long a process has computed, or 0 if that is not known.
func processorTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid)) // of its first thread, which does the start
	if err != nil {
		return 0
	}
	ran, _, _ := strings.Cut(string(text), " ")
	ns, _ := strconv.ParseInt(ran, 10, 64) // without a number it is not known
	return time.Duration(ns)
}

// Receive returns the parent's next message. Only one goroutine may call it. It returns an error
// when the parent has ended or Stop was called.
func (p *Parent) Receive() (Message, error) {
	var m Message
	buf := make([]byte, maxMessage)
	n, err := p.control.Read(buf)
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(buf[:n], &m); err != nil {
		return m, fmt.Errorf("it sent no message that is understood: %w", err)
	}
	return m, nil
}

// Order sends an order to the parent. file is passed to the worker. It may be nil: no file is
// passed.
func (p *Parent) Order(order *value.Map, file *os.File) error {
	b, err := pyframe.Pack(order)
	if err != nil {
		return err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	_ = p.control.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _, err = p.control.WriteMsgUnix(b, rights, nil)
	return err
}

// PID returns the process's ID.
func (p *Parent) PID() int { return p.command.Process.Pid }

// Alive reports whether the process runs.
func (p *Parent) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Done returns a channel that is closed when the process has ended.
func (p *Parent) Done() <-chan struct{} { return p.done }

// Stop ends the process and its workers and waits for their end. Processes that have not ended by
// themselves after grace are killed.
func (p *Parent) Stop(grace time.Duration) {
	_ = p.control.Close()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
	}
	// Processes of the group may outlive the parent.
	_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// SocketPair returns two connected sockets of a kind such as unix.SOCK_STREAM. The second socket is
// to be passed to another process.
func SocketPair(kind int) (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours := os.NewFile(uintptr(fds[0]), "python")
	theirs := os.NewFile(uintptr(fds[1]), "python")
	defer ours.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return c.(*net.UnixConn), theirs, nil
}
