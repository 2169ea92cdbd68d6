package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnanswered: what a supervisor or load balancer that does not answer leaves on standard output
// is a whole document for programs (S4).
func TestUnanswered(t *testing.T) {
	dir := t.TempDir()
	nobody := filepath.Join(dir, "none.sock")
	for _, verb := range []string{"status", "nodes", "storage status", "storage plan", "lb status"} {
		t.Run(verb, func(t *testing.T) {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}

			stderr, stdout := os.Stderr, os.Stdout
			os.Stdout = write
			os.Stderr, _ = os.Open(os.DevNull)
			code := run(t.Context(), append(strings.Fields(verb), "--socket", nobody, "--json"))
			os.Stderr, os.Stdout = stderr, stdout
			write.Close()
			text, _ := io.ReadAll(read)
			var got any
			if err := json.Unmarshal(text, &got); err != nil || code != 1 {
				t.Fatalf("exit status %d, %v: %q", code, err, text)
			}

			if strings.Contains(string(text), "0001-01-01") {
				t.Errorf("a time that nobody knows: %s", text)
			}

			if m, is := got.(map[string]any); is {
				if problems, _ := m["problems"].([]any); m["health"] != "unknown" || len(problems) != 1 {
					t.Errorf("%s", text)
				}
			}
		})
	}
}
