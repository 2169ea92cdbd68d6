package conf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A tool that works only on files must not fail because a path is too long for the sockets of a
// master.
func TestToolNeedsNoSockets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "master")
	if err := os.WriteFile(file,
		[]byte("sock_dir: /"+strings.Repeat("x", 110)+"\ncachedir: /"+strings.Repeat("y", 110)+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "too long for a socket") {
		t.Errorf("a master: %v", err)
	}
	if _, err := (&Loader{Tool: true}).Load(file); err != nil {
		t.Errorf("a tool: %v", err)
	}
}
