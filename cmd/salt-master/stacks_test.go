package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/await"
)

// TestStacksOnSignal: SIGUSR1 writes the stacks to a file where Python's master writes it, as Salt's
// own test_sigusr1_handler demands.
func TestStacksOnSignal(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	stop := stacksOnSignal(slog.New(slog.DiscardHandler), io.Discard)
	defer stop()

	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}

	await.That(t, "a file with stacks", func() bool {
		files, err := filepath.Glob(filepath.Join(dir, "salt-debug-*.log"))
		if err != nil || len(files) != 1 {
			return false
		}
		content, err := os.ReadFile(files[0])
		return err == nil && strings.Contains(string(content), t.Name()) && strings.HasSuffix(string(content), "====\n")
	})
}

func TestStacksNeverReplaceAFile(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1700000000, 0)
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kept, filepath.Join(dir, "salt-debug-1700000000.log")); err != nil {
		t.Fatal(err)
	}

	for n := 1; n < maxStackFiles; n++ {
		path, err := saveStacks(dir, now)
		if want := filepath.Join(dir, fmt.Sprintf("salt-debug-1700000000-%d.log", n)); err != nil || path != want {
			t.Errorf("%s, %v; want %s", path, err, want)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", path, info.Mode(), err)
		}
	}

	if path, err := saveStacks(dir, now); err == nil {
		t.Errorf("%s was written beyond the bound", path)
	}
	if content, err := os.ReadFile(kept); err != nil || string(content) != "kept" {
		t.Errorf("the file behind the link is %q, %v", content, err)
	}
}
