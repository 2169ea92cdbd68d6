// Package screen is a terminal for tests of programs that draw: a pty for the program,
// and a pane of tmux that shows what is written to it. The bytes of keyboards go to the
// program as they are, at the pace that a test chooses.
package screen

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"saltern/test/await"
)

// Screen is such a terminal. Its methods are for the goroutine of the test.
type Screen struct {
	t      testing.TB
	ours   *os.File // the far end of the program's line
	theirs *os.File
	tmux   *tmux
	pane   *os.File // the line to the pane of tmux
	term   string

	mu   sync.Mutex
	sent strings.Builder // all that the program has written
}

// Options are those of a [Screen].
type Options struct {
	Term          string // TERM of the program
	Width, Height int
	// FarEnd adds a CR to each LF that arrives at the far end of the line, as the
	// terminal of qemu -nographic does.
	FarEnd bool
}

// New opens a terminal, which ends with the test. Without tmux the test is skipped.
func New(t testing.TB, o Options) *Screen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("NOT TESTED: tmux is not installed")
	}

	s := &Screen{t: t, term: o.Term, tmux: startTmux(t, o.Width, o.Height)}
	var err error
	if s.ours, s.theirs, err = openLine(); err != nil {
		t.Fatal(err)
	}

	s.setSize(o.Width, o.Height)
	name := strings.TrimSpace(s.tmux.do(t, "display-message", "-p", "-t", "s", "#{pane_tty}"))
	if s.pane, err = os.OpenFile(name, os.O_WRONLY|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}

	s.rawPane(o.FarEnd)

	var passing sync.WaitGroup
	passing.Go(s.pass)
	t.Cleanup(func() {
		_ = s.theirs.Close()
		s.tmux.end()
		_ = s.ours.Close()
		passing.Wait()
		_ = s.pane.Close()
	})

	return s
}

// openLine opens a pty. Its far end does not block, so that closing it hangs up, also
// while something is being read from it.
func openLine() (ours, theirs *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a pty: %w", err)
	}

	ours = os.NewFile(uintptr(fd), "/dev/ptmx")
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}

	if err != nil {
		_ = ours.Close()
		return nil, nil, fmt.Errorf("open a pty: %w", err)
	}

	return ours, theirs, nil
}

// rawPane has the pane's line change nothing, or add a CR to each LF.
func (s *Screen) rawPane(farEnd bool) {
	s.t.Helper()
	modes, err := unix.IoctlGetTermios(int(s.pane.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	modes.Oflag &^= unix.OPOST
	if farEnd {
		modes.Oflag |= unix.OPOST | unix.ONLCR
	}
	modes.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(int(s.pane.Fd()), unix.TCSETS, modes); err != nil {
		s.t.Fatal(err)
	}
}

// pass gives the pane what the program writes, until the line ends.
func (s *Screen) pass() {
	buf := make([]byte, 4096)
	for {
		n, err := s.ours.Read(buf)
		if n > 0 {
			s.mu.Lock()
			s.sent.Write(buf[:n])
			s.mu.Unlock()
			_, _ = s.pane.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// Tty is the program's end of the line.
func (s *Screen) Tty() *os.File { return s.theirs }

// Env is the environment of a program on this terminal.
func (s *Screen) Env() []string { return []string{"TERM=" + s.term, "LC_ALL=C.UTF-8"} }

// Start runs a program on this terminal, as its controlling one. It is killed at the
// end of the test, unless it has ended.
func (s *Screen) Start(cmd *exec.Cmd) {
	s.t.Helper()
	cmd.Stdin = s.theirs
	cmd.Stdout = s.theirs
	cmd.Stderr = s.theirs
	cmd.Env = append(cmd.Env, s.Env()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// Type sends what a key sends, in one piece.
func (s *Screen) Type(bytes string) {
	s.t.Helper()
	if _, err := s.ours.WriteString(bytes); err != nil {
		s.t.Fatal(err)
	}
}

// TypeSlowly sends it byte by byte, with a pause after each, as slow lines do. It gives
// the longest pause that it has made: on a busy machine that is longer than it was to be.
func (s *Screen) TypeSlowly(bytes string, pause time.Duration) (longest time.Duration) {
	s.t.Helper()
	for i := range len(bytes) {
		began := time.Now()
		s.Type(bytes[i : i+1])
		time.Sleep(pause)
		longest = max(longest, time.Since(began))
	}
	return longest
}

// Scribble writes on the terminal as another program does that has it, too.
func (s *Screen) Scribble(text string) {
	s.t.Helper()
	if _, err := s.theirs.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// Resize gives the terminal another size, first the pane, then the line, and tells the
// programs of it that have it as their controlling terminal, and this process.
func (s *Screen) Resize(width, height int) {
	s.t.Helper()
	s.tmux.do(s.t, "resize-window", "-t", "s", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height))
	s.setSize(width, height)
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Screen) setSize(width, height int) {
	s.t.Helper()
	size := &unix.Winsize{Col: uint16(width), Row: uint16(height)}
	if err := unix.IoctlSetWinsize(int(s.theirs.Fd()), unix.TIOCSWINSZ, size); err != nil {
		s.t.Fatal(err)
	}
}

// HangUp ends the line at its far end.
func (s *Screen) HangUp() {
	s.t.Helper()
	if err := s.ours.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// Lines are what is to be seen, without blanks at their ends, from the first row to the
// last one that is not empty.
func (s *Screen) Lines() []string {
	s.t.Helper()
	return Trim(s.tmux.do(s.t, "capture-pane", "-p", "-t", "s"))
}

// Sent is all that was written to the terminal.
func (s *Screen) Sent() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent.String()
}

// Shows waits until a text is to be seen; it may go over lines.
func (s *Screen) Shows(text string) {
	s.t.Helper()
	if !await.Within(20*time.Second, func() bool { return strings.Contains(Flat(s.Lines()), text) }) {
		s.t.Fatalf("%q is not on the screen:\n%s", text, strings.Join(s.Lines(), "\n"))
	}
}

// Trim gives the lines of a text as [Screen.Lines] does.
func Trim(text string) []string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// Flat is the text of lines in one, with single blanks between its words.
func Flat(lines []string) string { return strings.Join(strings.Fields(strings.Join(lines, " ")), " ") }
