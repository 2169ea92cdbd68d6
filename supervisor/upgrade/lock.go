package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"saltern/internal/filelock"
)

// errBusy means that another process changes the slots.
var errBusy = errors.New("upgrade: another process installs or selects a version of this machine at this " +
	"moment; see applianced upgrade status, and try again when it is done")

// lockTakes bounds the wait for the lock. A process that selects a version holds the lock only for
// a moment. An installation takes minutes, and nobody waits for its end.
const lockTakes = time.Second

// lock excludes other processes that change the slots, until unlock is called. Otherwise two
// installations would write to one slot, and each would read its own part back as whole.
func (s *System) lock() (unlock func(), err error) {
	f, err := os.Open(filepath.Dir(s.env()))
	if err != nil {
		return nil, fmt.Errorf("upgrade: %w", err)
	}

	err = filelock.Wait(context.Background(), f, lockTakes)
	if err == nil {
		return func() { _ = f.Close() }, nil
	}

	_ = f.Close()
	if errors.Is(err, filelock.ErrHeld) {
		return nil, errBusy
	}
	return nil, fmt.Errorf("upgrade: lock the slots: %w", err)
}

// lockedStatus locks the slots and reads the machine's state.
func (s *System) lockedStatus() (st Status, unlock func(), err error) {
	if _, err := s.Status(); err != nil { // on a machine without slots there is nothing to lock
		return Status{}, nil, err
	}
	unlock, err = s.lock()
	if err != nil {
		return Status{}, nil, err
	}
	st, err = s.Status()
	if err != nil {
		unlock()
		return Status{}, nil, err
	}
	return st, unlock, nil
}
