package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"
)

// The drawing library writes what has changed since the last time. Whatever else is
// written on the terminal (the kernel, another program) stays there until all is drawn
// anew: at Ctrl-L, and at the first key after a while, since whoever comes to a console
// shall not need to know that.
const (
	repaintKey   = "ctrl+l"
	repaintAfter = time.Minute
)

// asNew puts a terminal into the state that the drawing library has in mind: no
// attributes, ASCII in both sets, no insertion, no origin, wrapping at the margin, all
// of the screen scrolls, no cursor (ECMA-48; DEC STD 070).
const asNew = "\x1b[m\x0f\x1b(B\x1b[4l\x1b[?6l\x1b[?7h\x1b[r\x1b[?25l"

// repainter draws a whole page anew where that is needed. It is used by one goroutine,
// bubbletea's.
type repainter struct {
	send func(tea.Msg)
	last time.Time // of the last key
}

// repainted is a message that draws everything anew.
func repainted() tea.Msg { return tea.Sequence(tea.Raw(asNew), tea.ClearScreen)() }

// resumed is a message that does so in the size that the terminal has now.
func (t Terminal) resumed() tea.Msg { return tea.Sequence(tea.Raw(asNew), t.windowSize)() }

// windowSize is a message with the size that the terminal has now.
func (t Terminal) windowSize() tea.Msg {
	size, err := unix.IoctlGetWinsize(int(t.Out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return tea.ClearScreen() // a terminal that is gone ends the program anyway
	}
	return tea.WindowSizeMsg{Width: int(size.Col), Height: int(size.Row)}
}

// filter looks at the messages of a program before the page does.
func (r *repainter) filter(_ tea.Model, msg tea.Msg) tea.Msg {
	// Each form asks for the size of the window, which its page knows. The answer would
	// draw everything anew, and two of them at a time race for fields of the program.
	if msg == tea.RequestWindowSize() {
		return nil
	}

	key, ok := msg.(tea.KeyPressMsg)
	if !ok {
		return msg
	}

	now := time.Now()
	idle := !r.last.IsZero() && now.Sub(r.last) >= repaintAfter
	r.last = now
	switch {
	case key.String() == repaintKey:
		return repainted()
	case idle:
		go r.send(repainted())
	}

	return msg
}
