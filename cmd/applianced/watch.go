package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

// windowOf returns the size of a terminal in columns and lines. It returns 80 and 24 if the size is
// unknown, as on serial lines.
func windowOf(terminal *os.File) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		size = &unix.Winsize{}
	}
	return int(cmp.Or(size.Col, 80)), int(cmp.Or(size.Row, 24))
}

// writeOn prints a status on a terminal, with lines broken between words. If the status is longer
// than the window, the window scrolls. So writeOn repeats the first line, which shows the health,
// at the end.
func writeOn(terminal *os.File, d status.Document) error {
	width, height := windowOf(terminal)
	lines := status.Fit(d, status.Room{Width: width})
	lines[0] = coloured(lines[0], d.Health)
	if len(lines) >= height { // the shell's prompt also needs a line
		lines = append(lines, lines[0])
	}
	_, err := io.WriteString(terminal, strings.Join(lines, "\n")+"\n")
	return err
}

// coloured returns a status line in which the health at the beginning has a colour, unless NO_COLOR
// is set (https://no-color.org).
func coloured(line string, h status.Health) string {
	answer := strings.ToUpper(string(h))
	rest, ok := strings.CutPrefix(line, answer)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return line
	}
	colour := map[status.Health]string{
		status.Healthy:      "32",
		status.Degraded:     "33",
		status.NotServing:   "31",
		status.Unconfigured: "36",
	}[h]
	return "\x1b[1;" + colour + "m" + answer + "\x1b[0m" + rest
}

// watchOn shows the status in a terminal's window until ctx ends. It draws the status at the given
// interval, and whenever the window's size changes. It returns the exit code of the last status.
func watchOn(ctx context.Context, terminal *os.File, c *api.Client, every time.Duration) error {
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, syscall.SIGWINCH, syscall.SIGCONT)
	defer signal.Stop(sizes)

	tick := time.NewTicker(every)
	defer tick.Stop()
	var last error
	for {
		d, err := c.Status(ctx)
		if ctx.Err() != nil {
			return last // the user has interrupted the request
		}

		last = exitWith(d.Exit)
		if err != nil {
			last = exitError(status.ExitUnknown)
		}

		if err := drawStatus(terminal, d, err); err != nil {
			return err
		}

		select {
		case <-ctx.Done():
			return last
		case <-tick.C:
		case <-sizes:
		}
	}
}

// drawStatus draws a status over the content of the window. It leaves the last line free for the
// cursor. fetchErr is the error of fetching the status, or nil.
func drawStatus(terminal *os.File, d status.Document, fetchErr error) error {
	width, height := windowOf(terminal)
	var lines []string
	if fetchErr != nil {
		for _, l := range unknownLines(fetchErr) {
			lines = append(lines, status.Wrap(l, width)...)
		}
		lines = lines[:min(len(lines), max(1, height-1))]
	} else {
		lines = status.Fit(d, status.Room{Width: width, Lines: max(1, height-1), Rest: "applianced status"})
		lines[0] = coloured(lines[0], d.Health)
	}

	const home, clearLine, toEndOfScreen = "\x1b[H", "\x1b[2K", "\x1b[J"
	var text strings.Builder
	text.WriteString(home)
	for _, l := range lines {
		// Clear the line before writing it. After a text that fills the line the cursor is still on
		// the last character, which clearing the rest of the line would remove.
		text.WriteString(clearLine + l + "\r\n")
	}

	text.WriteString(toEndOfScreen)
	_, err := io.WriteString(terminal, text.String())
	return err
}

// unknownLines returns the status lines to show if the supervisor does not answer.
func unknownLines(err error) []string {
	lines := []string{fmt.Sprint("UNKNOWN  ", err)}
	if errors.Is(err, api.ErrNotRunning) {
		lines = append(lines, "  next: systemctl status applianced says why; systemctl restart applianced starts it again")
	}
	return lines
}
