package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"
)

// The drawing library writes only what has changed since the last time. Text of others on the
// terminal (the kernel, another program) stays until the whole page is drawn again: at Ctrl-L, and
// at the first key after a while, for users who do not know Ctrl-L.
const (
	repaintKey   = "ctrl+l"
	repaintAfter = time.Minute
)

// asNew resets a terminal to the state that the drawing library assumes: no attributes, ASCII in
// both sets, no insertion, no origin, wrapping at the margin, the whole screen scrolls, no cursor
// (ECMA-48; DEC STD 070).
const asNew = "\x1b[m\x0f\x1b(B\x1b[4l\x1b[?6l\x1b[?7h\x1b[r\x1b[?25l"

// repainter draws a whole page again when that is needed. Only bubbletea's goroutine uses it.
type repainter struct {
	send func(tea.Msg)
	last time.Time // when the last key came
}

// repainted is a message that draws the whole page again.
func repainted() tea.Msg { return tea.Sequence(tea.Raw(asNew), tea.ClearScreen)() }

// resumed is a message that draws the whole page again in the current size of the terminal.
func (t Terminal) resumed() tea.Msg { return tea.Sequence(tea.Raw(asNew), t.windowSize)() }

// windowSize is a message with the current size of the terminal.
func (t Terminal) windowSize() tea.Msg {
	size, err := unix.IoctlGetWinsize(int(t.Out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return tea.ClearScreen() // if the terminal is gone, the program ends anyway
	}
	return tea.WindowSizeMsg{Width: int(size.Col), Height: int(size.Row)}
}

// filter sees the messages of a program before the page does.
func (r *repainter) filter(_ tea.Model, msg tea.Msg) tea.Msg {
	// Each form asks for the size of the window, which its page knows already. The answer would
	// draw the whole page again, and two answers at a time race for fields of the program.
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
