package tui

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"

	"saltern/test/await"
)

func open(t *testing.T, size *pty.Winsize) (ours, theirs *os.File) {
	t.Helper()
	ours, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	if err := pty.Setsize(ours, size); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// reader collects what a terminal is sent.
func reader(f *os.File) func() string {
	got := make(chan string, 1)
	got <- ""
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			if n > 0 {
				got <- <-got + string(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()

	return func() string { s := <-got; got <- s; return s }
}

// TestMuteTerminal: a line without a size on which nobody answers any question
// shows the first page, in ASCII, without colours, and takes keys.
func TestMuteTerminal(t *testing.T) {
	for _, term := range []string{"vt220", "linux", "dumb", "xterm-256color", ""} {
		t.Run("TERM="+term, func(t *testing.T) {
			ours, theirs := open(t, &pty.Winsize{})
			got := reader(ours)
			ended := make(chan error, 1)
			w := NewWizard(t.Context(), newScripted(), "ttyS0")
			go func() {
				_, err := Terminal{
					In:  theirs,
					Out: theirs,
					Env: []string{"TERM=" + term, "COLORTERM=truecolor"},
				}.Run(t.Context(), w)
				ended <- err
			}()

			await.That(t, "first page", func() bool { return strings.Contains(got(), "What shall this machine do?") })
			if size, err := pty.GetsizeFull(ours); err != nil || size.Cols != 80 || size.Rows != 24 {
				t.Errorf("size %+v %v", size, err)
			}

			_, _ = ours.WriteString("\x03")
			await.That(t, "question", func() bool { return strings.Contains(got(), "(y/n)") })
			_, _ = ours.WriteString("y")
			if err := <-ended; err != nil {
				t.Error(err)
			}

			text := got()
			if i := strings.IndexFunc(text, func(r rune) bool { return r > '~' }); i >= 0 {
				t.Errorf("not ASCII: %q", text[i:min(len(text), i+20)])
			}

			for _, colour := range []string{"\x1b[3", "\x1b[4", "\x1b[9", "\x1b[38", "\x1b[48"} {
				for _, rest := range strings.Split(text, colour)[1:] {
					if i := strings.IndexAny(rest, "mHABCDJKhlXdGr"); i >= 0 && rest[i] == 'm' {
						t.Errorf("a colour: %q", colour+rest[:i+1])
					}
				}
			}

			if strings.Contains(text, "\x1b[c") || strings.Contains(text, "\x1b]11;?") ||
				strings.Contains(text, "\x1b[6n") {
				t.Errorf("the terminal is asked: %q", text)
			}
		})
	}
}

// TestSerialLine: on a line whose far end adds a carriage return to each line
// feed, as a terminal with qemu -nographic does, pages look as they should.
func TestSerialLine(t *testing.T) {
	ours, theirs := open(t, &pty.Winsize{Cols: 80, Rows: 24})
	got := reader(ours)
	ended := make(chan error, 1)
	s := newScripted()
	w := NewWizard(t.Context(), s, "ttyS0")
	go func() {
		_, err := Terminal{In: theirs, Out: theirs, Env: []string{"TERM=vt220"}}.Run(t.Context(), w)
		ended <- err
	}()

	screen := func(text string) string {
		vt := vt10x.New(vt10x.WithSize(80, 24))
		_, _ = vt.Write([]byte(text))
		return vt.String()
	}

	for _, step := range []struct{ shows, keys string }{
		{"What shall this machine do?", "\r"},
		{"search domains example.org", "\r\x1b[B\x1b[B\r"},
		{"Time servers", "x\t\t\t\t10\r"},
		{"exclamation mark", "\x03"},
		{"(y/n)", ""},
	} {
		await.That(t, step.shows, func() bool { return strings.Contains(screen(got()), step.shows) })
		text := got()
		if plain, far := screen(text), screen(strings.ReplaceAll(text, "\n", "\r\n")); plain != far {
			t.Errorf("at %q the line shows\n%s\nand its far end\n%s", step.shows, plain, far)
		}
		_, _ = ours.WriteString(step.keys)
	}

	_, _ = ours.WriteString("y")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestTerminalEnds: the end of the program's context ends the page, and the
// terminal is as it was.
func TestTerminalEnds(t *testing.T) {
	ours, theirs := open(t, &pty.Winsize{Cols: 80, Rows: 24})
	got := reader(ours)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Terminal{In: theirs, Out: theirs, Env: []string{"TERM=vt220"}}.Run(ctx,
			NewWizard(ctx, newScripted(), "tty1"))
		ended <- err
	}()

	await.That(t, "first page", func() bool { return strings.Contains(got(), "What shall this machine do?") })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	await.That(t, "the cursor is back", func() bool { return strings.Contains(got(), "\x1b[?25h") })
}

// TestNoTerminal: what is no terminal is refused in words.
func TestNoTerminal(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()

	_, theirs := open(t, &pty.Winsize{Cols: 80, Rows: 24})
	for _, x := range []Terminal{{In: null, Out: theirs}, {In: theirs, Out: null}} {
		if _, err := x.Run(t.Context(), NewWizard(t.Context(), newScripted(), "")); !errors.Is(err, ErrNoTerminal) {
			t.Errorf("%v", err)
		}
	}

	if name := (Terminal{In: theirs}).Name(); !strings.HasPrefix(name, "pts/") {
		t.Errorf("called %q", name)
	}

	if name := (Terminal{In: null}).Name(); !slices.Contains([]string{"null", "terminal"}, name) {
		t.Errorf("called %q", name)
	}
}
