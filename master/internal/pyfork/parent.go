package pyfork

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"saltern/master/internal/pyframe"
	"saltern/master/value"
)

// Prelude is the Python code with which programs of parents begin: frames, logging, and control of
// processes.
//
//go:embed prelude.py
var Prelude string

// boot reads the program from its standard input, so that it needs no file.
const boot = `import struct,os
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
	// logTakes is how long reading the log continues after a parent has ended: processes that it
	// has started may hold the pipe open.
	logTakes = time.Second
	// oomScore makes the kernel kill a parent or worker before the master when memory is short. The
	// master starts them again.
	oomScore = "300"
	// exitNoSalt is the exit status of a program that cannot import Salt.
	exitNoSalt = 3
)

// Errors of a Python that does not start.
var (
	// ErrNoSalt means that it does not have Salt's library.
	ErrNoSalt = errors.New("it cannot import salt")
	// ErrCut means that it could not be started, or was ended before it was ready: for want of
	// memory or processes, or because it was too slow. A later start may succeed.
	ErrCut = errors.New("it was cut short")
)

// Config of a parent.
type Config struct {
	Python   string     // path, or name in PATH
	Program  string     // in Python; it must begin with Prelude
	Settings *value.Map // Settings are read by the program with receive_settings.
	Env      []string   // environment
	// StartTimeout bounds the time until the parent says that it is ready.
	StartTimeout time.Duration
	// Name names the purpose of the parent in log records: "renderer".
	Name string
	Log  *slog.Logger
}

// Message is a message of a parent on its control socket. Op decides which fields are set.
type Message struct {
	Op     string `json:"op"` // "ready" or "failed" in the first message; later ones belong to the program
	Error  string `json:"error"`
	Salt   string `json:"salt"` // version of the library
	Worker int64  `json:"worker"`
	Status int    `json:"status"` // of a worker's end, as returned by os.waitpid
}

// Parent is one running Python. Order, Alive and Stop may be called concurrently.
type Parent struct {
	Salt string // version of the library

	command *exec.Cmd
	control *net.UnixConn
	done    chan struct{} // closed after the end of the process and of its log
}

// Start runs a Python and waits until it is ready. Stop must be called.
func Start(ctx context.Context, cfg Config) (*Parent, error) {
	path, err := exec.LookPath(cfg.Python)
	if err == nil {
		path, err = filepath.Abs(path) // absolute: the process runs in another directory
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
	theirs.Close() // otherwise the end of the process would go unnoticed
	if err != nil {
		ours.Close()
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrCut, err)
		}
		return nil, fmt.Errorf("start %s: %w", path, err)
	}

	go p.waitForEnd(log, cfg) // until the process ends, for which Stop waits

	if err := p.awaitReady(ctx, cfg.StartTimeout); err != nil {
		p.Stop(time.Second)
		state := p.command.ProcessState
		switch {
		case state.ExitCode() == exitNoSalt:
			err = ErrNoSalt
		case errors.Is(err, errNotReady) && !state.Exited():
			err = fmt.Errorf("%w: %w", ErrCut, err)
		}

		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return p, nil
}

// launch starts the process and returns its standard error.
func (p *Parent) launch(cfg Config, settings []byte, control *os.File) (*os.File, error) {
	input := make([]byte, 0, len(cfg.Program)+len(settings)+8)
	for _, part := range []string{cfg.Program, string(settings)} {
		input = binary.BigEndian.AppendUint32(input, uint32(len(part)))
		input = append(input, part...)
	}

	// A pipe of our own: exec closes its pipe when the process ends, read or not.
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

	// A signal to the master's terminal is for the master only, and a stuck family can be killed as
	// a whole.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = logTakes
	if err := c.Start(); err != nil {
		log.Close()
		return nil, err
	}

	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", c.Process.Pid), []byte(oomScore), 0)
	return log, nil
}

// waitForEnd logs the output and waits for the end of the process.
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

// errNotReady means that a parent did not report its start.
var errNotReady = errors.New("it did not become ready")

// awaitReady reads the message that reports the start.
func (p *Parent) awaitReady(ctx context.Context, timeout time.Duration) error {
	_ = p.control.SetReadDeadline(time.Now().Add(timeout))
	defer context.AfterFunc(ctx, func() { _ = p.control.SetReadDeadline(time.Unix(1, 0)) })()

	m, err := p.Receive()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w: %w", errNotReady, err)
	case m.Op != "ready":
		return errors.New(m.Error)
	}

	p.Salt = m.Salt
	return p.control.SetReadDeadline(time.Time{})
}

// Receive waits for the next message of the parent. It is for one goroutine. It fails when the
// parent has ended or Stop was called.
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

// Order sends an order to the parent, with a file for a worker, or nil.
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

// PID returns the id of the process.
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

// Stop ends the process and its workers and waits for them. grace is the time in which they may end
// by themselves.
func (p *Parent) Stop(grace time.Duration) {
	_ = p.control.Close()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
	}
	// The group may outlive its first process.
	_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// SocketPair returns two connected sockets of a kind such as unix.SOCK_STREAM. The second is for
// another process.
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
