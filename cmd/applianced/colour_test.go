package main

import (
	"bytes"
	"os"
	"testing"

	"saltern/supervisor/status"
)

// The answer has a colour on a terminal only, and not for who wants none.
func TestColour(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	const text = "NOT SERVING  cluster x\nNOT SERVING\n"
	if got := coloured(tty, text, status.NotServing); got != "\x1b[1;31mNOT SERVING\x1b[0m  cluster x\nNOT SERVING\n" {
		t.Errorf("%q", got)
	}
	if got := coloured(&bytes.Buffer{}, text, status.NotServing); got != text {
		t.Errorf("into a pipe: %q", got)
	}
	t.Setenv("NO_COLOR", "1")
	if got := coloured(tty, text, status.NotServing); got != text {
		t.Errorf("NO_COLOR: %q", got)
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if got := coloured(tty, text, status.NotServing); got != text {
		t.Errorf("a dumb terminal: %q", got)
	}
}
