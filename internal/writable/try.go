// Package writable reports whether files can be written to folders. It repeatedly writes, syncs and
// reads back a small file. statfs(2) is no test: it succeeds on a file system that has shut down.
package writable

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// tryBytes is the size of the file of [Try]: a block of most file systems.
const tryBytes = 4 << 10

// Try tests that new files can be stored at path: it creates the file, syncs it, reads it back from
// the disk, and removes it. The folder must exist, and no other program may use the name. If a
// killed process has left a file of that name, Try removes it first.
//
// Try blocks for as long as the disk does. Its error wraps the errno.
func Try(path string) (err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	// With O_EXCL open fails if somebody else has put a link at path.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()

	written := make([]byte, tryBytes)
	rand.Read(written)
	if _, err := f.Write(written); err != nil {
		return err
	}

	if err := f.Sync(); err != nil {
		return err
	}

	// Drop the cached pages: otherwise the kernel would answer the read from its memory.
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	read := make([]byte, tryBytes)
	if _, err := f.ReadAt(read, 0); err != nil {
		return err
	}
	if !bytes.Equal(read, written) {
		return fmt.Errorf("read %s: it is not what was written", path)
	}

	return nil
}
