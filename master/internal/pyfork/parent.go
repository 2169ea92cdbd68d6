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

// Prelude is Python that programs of parents begin with: frames, logging, and what
// processes do about each other.
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
	// orderTakes bounds how long a parent may leave an order lying.
	orderTakes = 5 * time.Second
	// logTakes is how long the log of a parent that has ended is read on: what it has
	// started may hold the pipe open.
	logTakes = time.Second
	// oomScore is how ready the kernel is to kill a parent or worker when memory is
	// short: before the master, which has them started again.
	oomScore = "300"
	// endTakes is how long a process that does not start gets to say how it ends.
	endTakes = time.Second
	// exitNoSalt is how a program ends where Salt cannot be imported.
	exitNoSalt = 3
)

// What is wrong with a Python that does not start.
var (
	// ErrNoSalt means that it does not have Salt's library.
	ErrNoSalt = errors.New("it cannot import salt")
	// ErrCut means that it could not be started, or did not end by itself before it was
	// ready: for want of memory or processes, or since it was too slow. It may start later.
	ErrCut = errors.New("it was cut short")
)

// Config of a parent.
type Config struct {
	Python   string     // path, or name in PATH
	Program  string     // in Python; it must begin with Prelude
	Settings *value.Map // which the program reads with receive_settings
	Env      []string   // environment
	// StartTimeout bounds the time until the parent says that it is ready.
	StartTimeout time.Duration
	// Name of what the parent is for, in log records: "renderer".
	Name string
	Log  *slog.Logger
}

// Message is what a parent says on its control socket. Which fields count depends on Op.
type Message struct {
	Op     string `json:"op"` // "ready" or "failed" first; later ones are the program's
	Error  string `json:"error"`
	Salt   string `json:"salt"` // version of the library
	Worker int64  `json:"worker"`
	Status int    `json:"status"` // of a worker's end, as os.waitpid gives it
}

// Parent is one running Python. Order, Alive and Stop may be called concurrently.
type Parent struct {
	Salt string // version of the library

	command *exec.Cmd
	control *net.UnixConn
	done    chan struct{} // closed when the process has ended and its log is read
}

// Start runs a Python and waits until it says that it is ready. Stop must be called.
func Start(ctx context.Context, cfg Config) (*Parent, error) {
	path, err := exec.LookPath(cfg.Python)
	if err == nil {
		path, err = filepath.Abs(path) // it runs in another directory
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
	theirs.Close() // or the end of the process would go unnoticed
	if err != nil {
		ours.Close()
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrCut, err)
		}
		return nil, fmt.Errorf("start %s: %w", path, err)
	}

	go p.waitForEnd(log, cfg) // until the process ends, for which Stop waits

	if err := p.awaitReady(ctx, cfg.StartTimeout); err != nil {
		p.Stop(endTakes)
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

	// A pipe of our own: that of exec is closed when the process ends, read or not.
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

	// A signal to the master's terminal is the master's business, and a stuck family can
	// be killed as a whole.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = logTakes
	if err := c.Start(); err != nil {
		log.Close()
		return nil, err
	}

	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", c.Process.Pid), []byte(oomScore), 0)
	return log, nil
}

// waitForEnd passes the log on and waits for the end of the process.
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

// errNotReady means that a parent did not say how its start went.
var errNotReady = errors.New("it did not become ready")

// awaitReady reads the one message that says how the start went.
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

// Receive waits for the next message of the parent. It is for one goroutine, and fails
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

// Order tells the parent what to do, with a file for a worker, or nil.
func (p *Parent) Order(order *value.Map, file *os.File) error {
	b, err := pyframe.Pack(order)
	if err != nil {
		return err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	_ = p.control.SetWriteDeadline(time.Now().Add(orderTakes))
	_, _, err = p.control.WriteMsgUnix(b, rights, nil)
	return err
}

// PID is the process.
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

// Done is closed when the process has ended.
func (p *Parent) Done() <-chan struct{} { return p.done }

// Stop ends the process and its workers and waits for them; grace is the time they get
// to do so by themselves.
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

// SocketPair makes two connected sockets of a kind such as unix.SOCK_STREAM; the second
// is to be handed out.
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
