package lab

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
)

// Terminal is a program on a terminal of 80x24, and what it shows.
type Terminal struct {
	name string
	tty  *os.File
	cmd  *exec.Cmd
	vt   vt10x.Terminal
	done chan struct{}
	code int // valid after done is closed
}

// Terminal starts an interactive verb of applianced on the node. term is TERM;
// with sized false the terminal does not tell its size, as serial lines.
func (a *Appliance) Terminal(t testing.TB, term string, sized bool, args ...string) *Terminal {
	t.Helper()
	path, args := a.net.wrap(a.Addr, a.bin(t, "applianced"),
		append([]string{"--config", a.Config(), "--socket", a.Dir + "/run/applianced.sock"}, args...))
	return startTerminal(t, a.Name, term, sized, path, args...)
}

func startTerminal(t testing.TB, name, term string, sized bool, path string, args ...string) *Terminal {
	t.Helper()
	x := &Terminal{
		name: name,
		cmd:  exec.Command(path, args...),
		vt:   vt10x.New(vt10x.WithSize(80, 24)),
		done: make(chan struct{}),
	}

	x.cmd.Env = append(cleanEnv(), "TERM="+term, "LC_ALL=C")
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	size := &pty.Winsize{}
	if sized {
		size.Cols, size.Rows = 80, 24
	}

	started := make(chan error)
	go func() {
		// The parent death signal hangs on the thread that started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var err error
		x.tty, err = pty.StartWithSize(x.cmd, size)
		started <- err

		if err != nil {
			return
		}

		buf := make([]byte, 32<<10)
		for {
			n, err := x.tty.Read(buf)
			if n > 0 {
				_, _ = x.vt.Write(buf[:n]) // it takes everything
			}
			if err != nil {
				break
			}
		}

		_ = x.cmd.Wait()
		x.code = x.cmd.ProcessState.ExitCode()
		close(x.done)
	}()

	if err := <-started; err != nil {
		t.Fatalf("terminal on %s: %v", name, err)
	}

	t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		<-x.done
		_ = x.tty.Close()
		if t.Failed() {
			t.Logf("terminal on %s shows:\n%s", name, x.Screen())
		}
	})

	return x
}

// Screen is what is to be seen.
func (x *Terminal) Screen() string {
	lines := strings.Split(x.vt.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// WaitFor waits until all texts are to be seen.
func (x *Terminal) WaitFor(t testing.TB, limit time.Duration, texts ...string) {
	t.Helper()
	Eventually(t, limit, "terminal on "+x.name, func() error { return shows(x.Screen(), texts) })
}

// Type types text; "\r" is the enter key, "\x15" clears a field, "\x1b[B" is
// the arrow down.
func (x *Terminal) Type(t testing.TB, text string) {
	t.Helper()
	if _, err := x.tty.WriteString(text); err != nil {
		t.Fatalf("type on %s: %v", x.name, err)
	}
}

// WaitEnd waits for the end of the program and gives its exit code.
func (x *Terminal) WaitEnd(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-x.done:
		return x.code
	case <-time.After(Limit(limit)):
		t.Fatalf("the program on %s has not ended:\n%s", x.name, x.Screen())
		return -1
	}
}
