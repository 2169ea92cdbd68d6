package keys

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxKeyFile bounds a key file; a larger one is not read.
const maxKeyFile = 16 << 10

var (
	errNotRegular = errors.New("not a regular file")
	errTooLarge   = errors.New("file too large")
)

// fileSig tells a file from another one of the same name.
type fileSig struct {
	mtime int64 // nanoseconds
	size  int64
	ino   uint64
}

func sigOf(st os.FileInfo) fileSig {
	s := fileSig{mtime: st.ModTime().UnixNano(), size: st.Size()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		s.ino = sys.Ino
	}
	return s
}

// lstat is os.Lstat that only answers for regular files: other kinds are as
// good as absent.
func lstat(path string) (fileSig, error) {
	var st os.FileInfo
	err := retryStale(func() (err error) {
		st, err = os.Lstat(path)
		return err
	})
	if err != nil {
		return fileSig{}, err
	}
	if !st.Mode().IsRegular() {
		return fileSig{}, &os.PathError{Op: "lstat", Path: path, Err: os.ErrNotExist}
	}
	return sigOf(st), nil
}

// readRegular reads a regular file of at most limit bytes. It never blocks on
// a pipe or device and, unless follow is set, does not go through a link.
func readRegular(path string, limit int64, follow bool) (data []byte, st os.FileInfo, err error) {
	err = retryStale(func() error {
		data, st, err = readOnce(path, limit, follow)
		return err
	})
	return data, st, err
}

func readOnce(path string, limit int64, follow bool) ([]byte, os.FileInfo, error) {
	flags := os.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, nil, &os.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	if st.Size() > limit {
		return nil, nil, &os.PathError{Op: "read", Path: path, Err: errTooLarge}
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, nil, err
	}
	if int64(len(data)) > limit {
		return nil, nil, &os.PathError{Op: "read", Path: path, Err: errTooLarge}
	}
	return data, st, nil
}

// retryStale repeats f when a network file system says that it has just lost
// sight of a file that was replaced.
func retryStale(f func() error) error {
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		err := f()
		if err == nil || !errors.Is(err, syscall.ESTALE) || wait > 50*time.Millisecond {
			return err
		}
		time.Sleep(wait)
	}
}

// remove deletes a regular file; one that is not there is no error.
func remove(path string) (bool, error) {
	if _, err := lstat(path); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err := os.Remove(path); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	return true, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("syncing folder %s: %w", dir, err)
	}
	return nil
}
