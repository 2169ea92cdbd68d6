package saltlog

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestFinding08Lines: whatever a stranger puts into a value, the length of a line stays bounded.
func TestFinding08Lines(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(New("salt.master", Sink{Writer: &out, Level: slog.LevelInfo, Format: "%(message)s"}))
	for name, text := range map[string]string{
		"control characters": strings.Repeat("\x01", 1<<20), "text": strings.Repeat("x", 1<<20), "quotes": strings.Repeat("\"", 1<<20),
		"wide": strings.Repeat("\u202e", 1<<20), "no text": strings.Repeat("\xff", 1<<20), "smileys": strings.Repeat("\U0001f600", 1<<20),
	} {
		out.Reset()
		log.Warn("caller may not do this", "user", text, "error", text)
		if n := out.Len(); n > 2048 || n < 300 || !strings.Contains(out.String(), "bytes more") {
			t.Errorf("%s: a line of %d bytes", name, n)
		}

		out.Reset()
		log.Warn("Requested method not exposed: " + text)
		if n := out.Len(); n > 1500 {
			t.Errorf("%s: a message of %d bytes", name, n)
		}
	}

	out.Reset()
	whole := strings.Repeat("x", 200)
	log.Warn("fine", "path", whole, "stack", strings.Repeat("frame\n", 1000))
	if s := out.String(); !strings.Contains(s, whole) || strings.Contains(s, "bytes more") {
		t.Errorf("cut without need: %s", s)
	}
}
