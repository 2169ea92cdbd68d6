package tui

import (
	"context"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"

	"saltern/test/await"
	"saltern/test/screen"
)

// TestRepaintAfterAWhile: the first key of whoever comes to a terminal draws it anew,
// and is a key all the same; those behind it do not. (B1)
func TestRepaintAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repaints := 0
		r := repainter{send: func(tea.Msg) { repaints++ }}
		key := func() {
			t.Helper()
			msg := tea.KeyPressMsg{Code: 'a', Text: "a"}
			if got := r.filter(nil, msg); !reflect.DeepEqual(got, msg) {
				t.Errorf("the page is told of %v", got)
			}
			synctest.Wait()
		}

		key()
		time.Sleep(repaintAfter - time.Second)
		key()
		if repaints != 0 {
			t.Errorf("%d repaints while somebody is there", repaints)
		}

		time.Sleep(repaintAfter)
		key()
		key()
		if repaints != 1 {
			t.Errorf("%d repaints for somebody who comes", repaints)
		}

		if got := r.filter(nil, tea.WindowSizeMsg{}); got != (tea.WindowSizeMsg{}) {
			t.Errorf("of another message became %v", got)
		}

		if got := r.filter(nil, tea.RequestWindowSize()); got != nil {
			t.Errorf("of a form's question became %v", got)
		}
	})
}

// TestTerminalAfterAStop: a shell has set the terminal's modes and written on it while
// the program was stopped; afterwards it is as before. (B1)
func TestTerminalAfterAStop(t *testing.T) {
	x := at(t, terminals[2], NewWizard(context.Background(), newScripted(), "pts/1"))
	x.comes("What shall this machine do?")
	modes, err := unix.IoctlGetTermios(int(x.Tty().Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}

	sane := *modes
	sane.Lflag |= unix.ICANON | unix.ECHO | unix.ISIG
	sane.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(int(x.Tty().Fd()), unix.TCSETS, &sane); err != nil {
		t.Fatal(err)
	}

	x.Scribble("\x1b[2J\x1b[H$ fg\r\n")
	x.disturbed("the shell")
	for i := range 20 { // the window may have been resized meanwhile
		if err := syscall.Kill(syscall.Getpid(), []syscall.Signal{syscall.SIGCONT, syscall.SIGWINCH}[i%2]); err != nil {
			t.Fatal(err)
		}
	}

	x.agrees("the stop")
	x.press(down, 1)
	if now, err := unix.IoctlGetTermios(int(x.Tty().Fd()), unix.TCGETS); err != nil || *now != *modes {
		t.Errorf("modes %+v, not %+v, %v", now, modes, err)
	}
}

// TestLineIsHungUp: when the far end goes away, the page ends without an error.
func TestLineIsHungUp(t *testing.T) {
	x := at(t, screen.Options{Term: "vt220", Width: 80, Height: 24},
		NewWizard(context.Background(), newScripted(), "ttyS0"))
	x.comes("What shall this machine do?")
	x.HangUp()
	var ended []error
	if !await.Within(10*time.Second, func() bool {
		select {
		case err := <-x.ended:
			ended = append(ended, err)
			x.ended <- nil // for the end of the test
			return true
		default:
			return false
		}
	}) {
		t.Fatal("the page goes on")
	}

	if ended[0] != nil {
		t.Error(ended[0])
	}
}

// TestModesAreRestored: the terminal is left in the modes that it had, and nothing that
// a vt220 does not know was asked of it.
func TestModesAreRestored(t *testing.T) {
	s := screen.New(t, screen.Options{Term: "vt220", Width: 80, Height: 24})
	before, err := unix.IoctlGetTermios(int(s.Tty().Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Terminal{In: s.Tty(), Out: s.Tty(), Env: s.Env()}.Run(ctx, NewWizard(ctx, newScripted(), "ttyS0"))
		ended <- err
	}()

	s.Shows("What shall this machine do?")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	if after, err := unix.IoctlGetTermios(int(s.Tty().Fd()), unix.TCGETS); err != nil || *after != *before {
		t.Errorf("modes %+v, before %+v, %v", after, before, err)
	}

	for _, unknown := range []string{"\x1b[>", "\x1b[<", "\x1b[=", "\x1b]", "\x1bP", "\t"} {
		if strings.Contains(s.Sent(), unknown) {
			t.Errorf("the terminal was sent %q", unknown)
		}
	}
}
