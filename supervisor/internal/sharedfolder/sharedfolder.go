// Package sharedfolder changes a small folder on the shared storage, which all nodes read and any
// node may change. Only one node changes the folder at a time, and a reader never sees a
// half-written file.
package sharedfolder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/filelock"
)

// Lock locks a folder against changes by others on this node and on other nodes until unlock is
// called. It uses the same kind of lock as the lease of the volume. Lock waits at most for limit.
// Errors contain content, which names what the folder holds.
func Lock(ctx context.Context, dir, content string, limit time.Duration) (unlock func(), err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", content, err)
	}
	defer root.Close()

	f, err := root.OpenFile(".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", content, err)
	}

	err = filelock.Wait(ctx, f, limit)
	if err == nil {
		return func() { f.Close() }, nil
	}

	f.Close()
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("somebody else changes %s at this moment; try again", content)
	}
	return nil, fmt.Errorf("lock %s: %w", content, err)
}

// Write replaces a file in a folder. A reader gets either the old file or the new one. setOwner
// sets owner and mode of the new file; before that, only this account can read the file.
func Write(root *os.Root, name string, content io.Reader, setOwner func(*os.File) error) error {
	tmp := filepath.Join(filepath.Dir(name), ".new-"+filepath.Base(name))
	_ = root.Remove(tmp)
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}

	_, err = io.Copy(f, content)
	if err == nil {
		err = setOwner(f)
	}
	if err == nil {
		err = f.Sync()
	}

	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Rename(tmp, name)
	}

	if err != nil {
		_ = root.Remove(tmp)
	}

	return err
}
