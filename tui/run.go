package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"golang.org/x/sys/unix"

	"saltern/tui/input"
)

// Terminal is the terminal on which a page is drawn. Both files are usually the same tty.
type Terminal struct {
	In  *os.File
	Out *os.File
	Env []string

	fps int // frames per second; 0 means the default of the page
}

// ErrNoTerminal means that the program does not run on a terminal.
var ErrNoTerminal = errors.New("this needs a terminal")

// Name returns the name of the terminal: "tty1", "ttyS0", "pts/3".
func (t Terminal) Name() string {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", t.In.Fd()))
	if err != nil || !strings.HasPrefix(name, "/dev/") {
		return "terminal"
	}
	return cleanLine(strings.TrimPrefix(name, "/dev/"))
}

// Frames per second. The program wakes up for each frame, even if there is nothing to draw. The
// console page needs fewer: it runs for ever, and its users press single keys.
const (
	frames        = 10
	consoleFrames = 4
)

// Run draws the model until the model quits, ctx ends or the line is hung up. It returns the last
// model.
func (t Terminal) Run(ctx context.Context, m tea.Model) (tea.Model, error) {
	if err := t.guardSize(); err != nil {
		return m, err
	}

	modes, err := holdModes(t.In, t.Out)
	if err != nil {
		return m, err
	}
	defer modes.restore()

	fps := cmp.Or(t.fps, frames)
	if _, forEver := m.(*Console); forEver {
		fps = consoleFrames
	}

	var p *tea.Program
	repaint := repainter{send: func(msg tea.Msg) { p.Send(msg) }}
	p = tea.NewProgram(m,
		tea.WithContext(ctx),
		tea.WithInput(nil), // package input reads the keys
		tea.WithOutput(t.Out),
		tea.WithEnvironment(t.drawingEnv()),
		tea.WithColorProfile(colorprofile.Ascii),
		tea.WithFPS(fps),
		tea.WithFilter(repaint.filter),
		tea.WithoutSignalHandler(),
	)

	besides, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	var heard error
	others.Go(func() {
		heard = input.Listen(besides, t.In, p.Send)
		p.Quit() // no more keys can come
	})

	others.Go(func() { modes.afterStop(besides, func() { p.Send(t.resumed()) }) })

	last, err := p.Run()
	cancel()
	others.Wait()
	switch {
	case ctx.Err() != nil, errors.Is(err, unix.EIO): // EIO: the line was hung up
		return last, nil
	case err != nil:
		return last, fmt.Errorf("terminal: %w", err)
	}

	return last, heard
}

// guardSize sets the size of a terminal without a size, such as a serial line, to 80x24. Without a
// size nothing would be drawn.
func (t Terminal) guardSize() error {
	if _, err := unix.IoctlGetTermios(int(t.In.Fd()), unix.TCGETS); err != nil {
		return fmt.Errorf("%w: standard input is none", ErrNoTerminal)
	}

	ws, err := unix.IoctlGetWinsize(int(t.Out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return fmt.Errorf("%w: standard output is none", ErrNoTerminal)
	}
	if ws.Row > 0 && ws.Col > 0 {
		return nil
	}

	ws.Row, ws.Col = minHeight, minWidth
	if err := unix.IoctlSetWinsize(int(t.Out.Fd()), unix.TIOCSWINSZ, ws); err != nil {
		return fmt.Errorf("set the size of the terminal: %w", err)
	}

	return nil
}

// drawingEnv returns the environment for the drawing library. It sets SSH_TTY, so that the library
// sends the terminal no queries: a serial line without a listener never answers, and an old
// terminal would display the query.
func (t Terminal) drawingEnv() []string {
	env := append([]string{}, t.Env...)
	term := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "TERM="); ok {
			term = v
		}
	}
	if term == "" || term == "dumb" || term == "unknown" {
		env = append(env, "TERM=vt220")
	}
	return append(env, "SSH_TTY=/dev/null")
}

// Model is a page for a terminal: a bubbletea model.
type Model = tea.Model
