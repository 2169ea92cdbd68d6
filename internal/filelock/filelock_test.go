package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, path), open(t, path)
	if err := Try(first); err != nil {
		t.Fatal(err)
	}
	if err := Try(second); !errors.Is(err, ErrHeld) {
		t.Errorf("a lock that is held: %v", err)
	}
	if err := Wait(t.Context(), second, 10*time.Millisecond); !errors.Is(err, ErrHeld) {
		t.Errorf("a lock that is held for longer than the limit: %v", err)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Wait(ended, second, time.Hour); !errors.Is(err, ErrHeld) {
		t.Errorf("a lock that is held until the context ends: %v", err)
	}

	got := make(chan error)
	go func() { got <- Wait(t.Context(), second, time.Minute) }()
	_ = first.Close()
	if err := <-got; err != nil {
		t.Errorf("a lock that is free again: %v", err)
	}

	// A child that has inherited the lock, as a fork does before its program begins.
	fd, err := syscall.Dup(int(second.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := Release(second); err != nil {
		t.Error(err)
	}
	third := open(t, path)
	if err := Try(third); err != nil {
		t.Errorf("a lock that was released: %v", err)
	}
	_ = third.Close()

	closed := open(t, path)
	_ = closed.Close()
	if err := Wait(t.Context(), closed, time.Minute); err == nil || errors.Is(err, ErrHeld) {
		t.Errorf("a file that is closed: %v", err)
	}
}
