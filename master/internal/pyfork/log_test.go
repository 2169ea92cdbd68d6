package pyfork

import (
	"bytes"
	"cmp"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestLongRecords: a record counts as what it is however long it is, and whatever its
// characters: as JSON one takes up to twelve bytes.
func TestLongRecords(t *testing.T) {
	python, err := exec.LookPath(cmp.Or(os.Getenv("SALTERN_PYTHON"), "python3"))
	if err != nil {
		t.Skip("SKIPPED: no Python")
	}

	program := Prelude + `
setup_logging(30)
for text in ["a", "\u00e4", "\U0001f600", "\x00", "\ud800", "\\"]:
    logging.getLogger("x" * 300).error("BEGIN" + text * 9000)
`

	var stderr bytes.Buffer
	c := exec.CommandContext(t.Context(), python, "-I", "-c", program)
	c.Stderr = &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}

	for line := range strings.Lines(stderr.String()) {
		if len(line) > 4096 {
			t.Errorf("a line of %d bytes is written in pieces", len(line))
		}
	}

	var log bytes.Buffer
	relayLog(&stderr, "python", slog.New(slog.NewTextHandler(&log, nil)))
	if n := strings.Count(log.String(), "level=ERROR msg=\"python: BEGIN"); n != 6 {
		t.Errorf("%d of 6 records", n)
	}
}

// FuzzLogLines reads what a parent and its workers could write to standard error.
func FuzzLogLines(f *testing.F) {
	f.Add([]byte(`{"level": 40, "logger": "salt.x", "text": "no"}` + "\n"))
	f.Add([]byte("plain\n{\"level\": \"x\"}\n"))
	f.Add(append(bytes.Repeat([]byte{'a'}, 40000), '\n'))
	f.Fuzz(func(t *testing.T, b []byte) {
		relayLog(bytes.NewReader(b), "renderer", slog.New(slog.NewTextHandler(io.Discard, nil)))
	})
}
