package renderer

import (
	"bufio"
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
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"saltern/master/internal/gitpillar"
	"saltern/master/pyframe"
	"saltern/master/value"
)

//go:embed worker.py
var workerScript string

//go:embed reads.py
var readsScript string

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
exec(compile(s,"saltern-renderer","exec"),{"__name__":"__main__"})`

// nursery is one running parent of workers.
type nursery struct {
	cmd     *exec.Cmd
	ctl     *net.UnixConn
	log     *slog.Logger
	version string // of Salt
	layer   string // of packages
	workers atomic.Int64
	last    atomic.Int64
	done    chan struct{} // closed when the process has ended and its log is read
}

// control is a message on the control socket, from the nursery.
type control struct {
	Op, Salt, Error string
}

// startNursery runs one Python and waits until it has imported Salt.
func startNursery(ctx context.Context, cfg *Config, python string) (*nursery, error) {
	layer := cfg.Layer()
	settings, err := pyframe.Pack(value.NewMap("config_file", cfg.ConfigFile, "overrides", cfg.Overrides.Clone(),
		"layer", layer, "memory_limit", cfg.MemoryLimit, "max_frame", cfg.MaxMessage, "log_level", 30))
	if err != nil {
		return nil, fmt.Errorf("pack the settings of the renderer: %w", err)
	}
	mine, theirs, err := socketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, fmt.Errorf("make the renderer's control socket: %w", err)
	}
	path, err := exec.LookPath(python)
	if err == nil {
		path, err = filepath.Abs(path) // it runs in another directory
	}
	if err != nil {
		mine.Close()
		theirs.Close()
		return nil, fmt.Errorf("find %s: %w", python, err)
	}
	// Isolated: nothing is imported from the working directory, PYTHONPATH or a
	// user's own packages.
	cmd := exec.Command(path, "-I", "-c", boot)
	cmd.Dir = "/"
	cmd.Env = cfg.Env
	if cmd.Env == nil {
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LANG=C.UTF-8", "LC_ALL=C.UTF-8"}
	}
	cmd.ExtraFiles = []*os.File{theirs}
	// A group of its own: a signal to the master's terminal is the master's
	// business, and a stuck family can be killed as a whole.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	program := readsScript + gitpillar.Python + workerScript
	input := make([]byte, 0, len(program)+len(settings)+8)
	for _, part := range []string{program, string(settings)} {
		input = binary.BigEndian.AppendUint32(input, uint32(len(part)))
		input = append(input, part...)
	}
	cmd.Stdin = strings.NewReader(string(input))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		mine.Close()
		theirs.Close()
		return nil, err
	}
	err = cmd.Start()
	theirs.Close() // or the end of the process would go unnoticed
	if err != nil {
		mine.Close()
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errStart, err)
		}
		return nil, fmt.Errorf("start %s: %w", python, err)
	}
	// Of all that runs here a template may take memory for nothing: when it is
	// short, the kernel is to kill its renderer first. The others have it from this one.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("300"), 0)
	n := &nursery{layer: layer, cmd: cmd, ctl: mine, log: cfg.Log, done: make(chan struct{})}
	n.last.Store(time.Now().UnixNano())
	go func() {
		defer close(n.done)
		relayLog(stderr, cfg.Log)
		if err := cmd.Wait(); err != nil {
			cfg.Log.Debug("the renderer process ended", "error", err)
		}
	}()
	if err := n.await(ctx, cfg.StartTimeout); err != nil {
		n.stop(endGrace)
		if errors.Is(err, io.ErrUnexpectedEOF) && n.cut() {
			err = fmt.Errorf("%w: %w", errStart, err)
		}
		return nil, fmt.Errorf("%s: %w", python, err)
	}
	return n, nil
}

// endGrace is how long a process that does not start gets to say how it ends.
const endGrace = time.Second

// cut reports whether the process did not end by itself: it was killed, by the kernel
// for want of memory or by stop since it was not ready in time.
func (n *nursery) cut() bool { return n.cmd.ProcessState == nil || !n.cmd.ProcessState.Exited() }

// await reads the one message that says how the start went.
func (n *nursery) await(ctx context.Context, timeout time.Duration) error {
	n.ctl.SetReadDeadline(time.Now().Add(timeout))
	stop := context.AfterFunc(ctx, func() { n.ctl.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 16<<10)
	k, err := n.ctl.Read(buf)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || k == 0 {
		return fmt.Errorf("it did not become ready: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	var m control
	if err := json.Unmarshal(buf[:k], &m); err != nil {
		return fmt.Errorf("it sent no message that is understood: %w", err)
	}
	if m.Op != "ready" {
		return errors.New(m.Error)
	}
	n.version = m.Salt
	return nil
}

// order sends an instruction, with a file for the worker.
func (n *nursery) order(op string, worker int64, f *os.File) error {
	b, err := pyframe.Pack(value.NewMap("op", op, "worker", worker))
	if err != nil {
		return err
	}
	var oob []byte
	if f != nil {
		oob = unix.UnixRights(int(f.Fd()))
	}
	n.ctl.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _, err = n.ctl.WriteMsgUnix(b, oob, nil)
	return err
}

// stop ends the process and its workers and waits for them; grace is the
// time they get to do so by themselves.
func (n *nursery) stop(grace time.Duration) {
	n.ctl.Close()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-n.done:
	case <-t.C:
	}
	// The group may outlive its first process.
	syscall.Kill(-n.cmd.Process.Pid, syscall.SIGKILL)
	<-n.done
}

func (n *nursery) alive() bool {
	select {
	case <-n.done:
		return false
	default:
		return true
	}
}

// relayLog turns lines of the processes into log records. A line that is too
// long is cut, and a flood is thinned: 200 lines per 10 seconds.
func relayLog(r io.Reader, log *slog.Logger) {
	br := bufio.NewReaderSize(r, 16<<10)
	var window time.Time
	var lines, dropped int
	for {
		line, more, err := br.ReadLine()
		if err != nil {
			return
		}
		text := string(line)
		for more && err == nil {
			_, more, err = br.ReadLine()
		}
		if now := time.Now(); now.Sub(window) > 10*time.Second {
			if dropped > 0 {
				log.Warn("renderer wrote too many log lines", "dropped", dropped)
			}
			window, lines, dropped = now, 0, 0
		}
		if lines++; lines > 200 {
			dropped++
			continue
		}
		var rec struct {
			Level        int
			Logger, Text string
		}
		if json.Unmarshal([]byte(text), &rec) != nil {
			log.Info("renderer output", "text", text)
			continue
		}
		level := slog.LevelDebug
		switch {
		case rec.Level >= 40:
			level = slog.LevelError
		case rec.Level >= 30:
			level = slog.LevelWarn
		case rec.Level >= 20:
			level = slog.LevelInfo
		}
		// Below the first line are tracebacks and excerpts of templates.
		head, _, more := strings.Cut(rec.Text, "\n")
		log.Log(context.Background(), level, "renderer: "+head, "logger", rec.Logger)
		if more {
			log.Debug("renderer: "+rec.Text, "logger", rec.Logger)
		}
	}
}

// socketPair makes connected sockets; the second is to be handed out.
func socketPair(kind int) (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	mine, theirs := os.NewFile(uintptr(fds[0]), "renderer"), os.NewFile(uintptr(fds[1]), "renderer")
	defer mine.Close()
	c, err := net.FileConn(mine)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return c.(*net.UnixConn), theirs, nil
}
