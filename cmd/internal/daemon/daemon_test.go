package daemon

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"saltern/master/saltlog"
	"saltern/test/await"
)

// TestLogFollowsItsPath moves the log file away while the program logs, as logrotate does.
func TestLogFollowsItsPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "program")
	log := openLog(t, path)

	log.Warn("first")
	moved := path + ".1"
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	log.Warn("second")

	holds(t, moved, "first")
	holds(t, path, "second")
}

// TestHangupOpensLogAgain: SIGHUP creates the file of a log that was moved away before anything is
// logged, and does not end a program, with a log file or without.
func TestHangupOpensLogAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	openLog(t, path)
	openLog(t, "")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}

	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}

	await.That(t, "the log file is there again", func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// TestPIDFileOfAnotherIsKept: a program removes only the file with its own process id.
func TestPIDFileOfAnotherIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	WritePID(path, slog.New(slog.DiscardHandler))
	holds(t, path, ownPID())
	RemovePID(path)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the own file is still there: %v", err)
	}

	if err := os.WriteFile(path, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	RemovePID(path)
	holds(t, path, "1")
}

func openLog(t *testing.T, path string) *slog.Logger {
	t.Helper()
	log, closeLog, err := Program{Name: "program"}.OpenLog(saltlog.Config{Name: "salt", Stderr: io.Discard, Path: path}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeLog)
	return log
}

func holds(t *testing.T, path, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), text) || strings.Count(string(b), "\n") > 1 {
		t.Errorf("%s holds %q, not only %q", path, b, text)
	}
}
