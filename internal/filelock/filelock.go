// Package filelock locks open files and directories against other processes (flock(2)). A lock ends
// when the file is closed, or with the process.
package filelock

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld means that another process has the lock.
var ErrHeld = errors.New("another process has the lock")

// tryEvery is the interval at which Wait tries to lock the file.
const tryEvery = 50 * time.Millisecond

// Try locks f, without waiting. It returns ErrHeld if another process has the lock.
func Try(f *os.File) error {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
}

// Release unlocks f at once. Closing f unlocks it only when no child process has f open as well: a
// child that was just forked does until it executes its program.
func Release(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// Wait works like Try, but waits for at most limit, or until ctx ends, while another process has the
// lock.
func Wait(ctx context.Context, f *os.File, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := Try(f)
		if !errors.Is(err, ErrHeld) {
			return err
		}
		select {
		case <-ctx.Done():
			return ErrHeld
		case <-time.After(tryEvery):
		}
	}
}
