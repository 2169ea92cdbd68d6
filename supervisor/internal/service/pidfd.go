package service

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// lasting is one process of a [Lasting]. It need not be a child of this process.
type lasting struct {
	pid        int
	ticks, tag string
	adopted    bool // started in an earlier life of this supervisor
	inService  bool // whether it is the newest process

	fd   *os.File      // pidfd of the process
	gone chan struct{} // closed when the process has ended or is no longer watched
	err  error         // how the process ended; valid once gone is closed

}

// watchEnd starts waiting for the end of the process. When the process ends, watchEnd calls ended
// and then closes gone. A pidfd always refers to the same process, even if the process ID is used
// again (pidfd_open(2)).
func (p *lasting) watchEnd(ended func()) error {
	fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch process %d: %w", p.pid, err)
	}

	p.fd, p.gone = os.NewFile(uintptr(fd), "process"), make(chan struct{})
	rc, err := p.fd.SyscallConn()
	if err != nil {
		_ = p.fd.Close()
		return fmt.Errorf("watch process %d: %w", p.pid, err)
	}

	go func() {
		defer close(p.gone)
		err := rc.Read(func(fd uintptr) bool {
			pfd := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(pfd, 0)
			return err == nil && n > 0
		})
		if err != nil {
			return // unwatch has closed the pidfd
		}

		p.err = p.reap()
		_ = p.fd.Close()
		ended()
	}()

	return nil
}

// reap returns how the process ended. Only the parent of the process can find that out.
func (p *lasting) reap() error {
	var ws syscall.WaitStatus
	for {
		n, err := syscall.Wait4(p.pid, &ws, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || n != p.pid:
			return errors.New("ended (an earlier life of the supervisor had started it, so its exit code is not known)")
		case ws.Signaled():
			return &ExitError{Code: -1, Signal: signalName(ws.Signal())}
		default:
			return &ExitError{Code: ws.ExitStatus()}
		}
	}
}

// unwatch stops watching, and returns when the watch has ended. The process keeps running.
func (p *lasting) unwatch() {
	_ = p.fd.Close()
	<-p.gone
}

// signal sends a signal to the process if it still runs.
func (p *lasting) signal(s syscall.Signal) {
	rc, err := p.fd.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), s, nil, 0) })
}

// procStat holds some fields of /proc/PID/stat.
type procStat struct {
	state string
	ticks string // start time in clock ticks since boot, as text
}

// statOf reads the state and start time of a process, also of a zombie
// (proc(5), stat, fields 3 and 22).
func statOf(pid int) (procStat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, err
	}
	// Field 2, the name, may contain anything: it ends at the last bracket.
	i := strings.LastIndexByte(string(b), ')')
	fields := strings.Fields(string(b[i+1:]))
	if i < 0 || len(fields) < 20 {
		return procStat{}, os.ErrProcessDone
	}
	return procStat{fields[0], fields[19]}, nil
}
