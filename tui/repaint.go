package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"
)

// The drawing library writes only the parts of the page that have changed. So text that other
// programs or the kernel write to the terminal stays until the whole page is drawn again. That
// happens at repaintKey and, for users who do not know it, at the first key after a pause of
// repaintAfter.
const (
	repaintKey   = "ctrl+l"
	repaintAfter = time.Minute
)

// asNew resets a terminal to the state that the drawing library assumes: no attributes, ASCII in both
// character sets, no insert mode, no origin mode, wrapping at the margin, the whole screen as scroll
// region, no cursor (ECMA-48; DEC STD 070).
const asNew = "\x1b[m\x0f\x1b(B\x1b[4l\x1b[?6l\x1b[?7h\x1b[r\x1b[?25l"

// repainter decides when to draw the whole page again. Only bubbletea's goroutine uses it.
type repainter struct {
	send func(tea.Msg)
	last time.Time // time of the last key press
}

// repainted is a command that draws the whole page again.
func repainted() tea.Msg { return tea.Sequence(tea.Raw(asNew), tea.ClearScreen)() }

// resumed is a command that draws the whole page again in the current size of the terminal.
func (t Terminal) resumed() tea.Msg { return tea.Sequence(tea.Raw(asNew), t.windowSize)() }

// windowSize is a command that returns the current size of the terminal.
func (t Terminal) windowSize() tea.Msg {
	size, err := unix.IoctlGetWinsize(int(t.Out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return tea.ClearScreen() // if the terminal is closed, the program ends anyway
	}
	return tea.WindowSizeMsg{Width: int(size.Col), Height: int(size.Row)}
}

// filter handles the messages of a program before the page gets them. It returns nil to drop a
// message.
func (r *repainter) filter(_ tea.Model, msg tea.Msg) tea.Msg {
	// Drop this request: each form requests the window's size, which its page already has. The
	// answer would draw the whole page again, and two answers at the same time cause a data race in
	// the program.
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
