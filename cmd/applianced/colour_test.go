package main

import (
	"testing"

	"saltern/supervisor/status"
)

// The answer has a colour, and none for who wants none.
func TestColour(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	const text = "NOT SERVING  cluster x"
	if got := coloured(text, status.NotServing); got != "\x1b[1;31mNOT SERVING\x1b[0m  cluster x" {
		t.Errorf("%q", got)
	}

	t.Setenv("NO_COLOR", "1")
	if got := coloured(text, status.NotServing); got != text {
		t.Errorf("NO_COLOR: %q", got)
	}

	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if got := coloured(text, status.NotServing); got != text {
		t.Errorf("a dumb terminal: %q", got)
	}
}
