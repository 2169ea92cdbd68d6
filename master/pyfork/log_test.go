package pyfork

import (
	"bytes"
	"io"
	"log/slog"
	"testing"
)

// FuzzLogLines reads what a parent and its workers could write to standard error.
func FuzzLogLines(f *testing.F) {
	f.Add([]byte(`{"level": 40, "logger": "salt.x", "text": "no"}` + "\n"))
	f.Add([]byte("plain\n{\"level\": \"x\"}\n"))
	f.Add(append(bytes.Repeat([]byte{'a'}, 40000), '\n'))
	f.Fuzz(func(t *testing.T, b []byte) {
		relayLog(bytes.NewReader(b), "renderer", slog.New(slog.NewTextHandler(io.Discard, nil)))
	})
}
