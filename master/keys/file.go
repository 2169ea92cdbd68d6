package keys

import (
	"errors"
	"os"
	"syscall"
	"time"

	"saltern/internal/durable"

	"golang.org/x/sys/unix"
)

// maxKeyFile bounds a key file in bytes; the store does not read larger files.
const maxKeyFile = 16 << 10

// retryStale repeats f while it fails with ESTALE, which a network file system returns just after a
// file was replaced.
func retryStale(f func() error) error { return durable.RetryStale(50*time.Millisecond, f) }

// fileSig distinguishes versions of a file with the same name.
type fileSig struct {
	mtime int64 // modification time in Unix nanoseconds
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

// onVolume reports whether a folder is on a FUSE volume, where each access to a file is a request
// to servers over the network.
func onVolume(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.FUSE_SUPER_MAGIC
}

// lstatRegular works like os.Lstat for a regular file. It returns the error of a missing file for
// any other kind of file.
func lstatRegular(path string) (fileSig, error) {
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

// readRegular reads a regular file of at most limit bytes. It never blocks on a pipe or device. It
// follows a symbolic link only if follow is set.
func readRegular(path string, limit int64, follow bool) (data []byte, st os.FileInfo, err error) {
	links := durable.Refuse
	if follow {
		links = durable.Follow
	}
	err = retryStale(func() (err error) {
		data, st, err = durable.ReadFile(path, limit, links)
		return err
	})
	return data, st, err
}

// remove deletes a regular file and reports whether it existed.
func remove(path string) (bool, error) {
	if _, err := lstatRegular(path); errors.Is(err, os.ErrNotExist) {
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

// createFile creates a file that must not exist, and syncs it.
func createFile(path string, data []byte, mode os.FileMode) (sig fileSig, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return sig, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(path)
		}
	}()
	return fillFile(f, data, mode)
}

// writeNew works like createFile, but returns no signature of the file.
func writeNew(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	if err = fillNew(f, data, mode); err != nil {
		_ = os.Remove(path)
	}
	return err
}

// fillNew writes data to a new file, syncs and closes it.
func fillNew(f *os.File, data []byte, mode os.FileMode) error {
	err := durable.Fill(f, data, mode)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// abandoned reports whether a file was created more than ten seconds ago and never written.
func abandoned(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Mode().IsRegular() && st.Size() == 0 && time.Since(st.ModTime()) > 10*time.Second
}

// fillFile writes data to a file, syncs and closes it, and returns the file's signature.
func fillFile(f *os.File, data []byte, mode os.FileMode) (fileSig, error) {
	err := durable.Fill(f, data, mode)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fileSig{}, err
	}
	st, err := f.Stat()
	if err != nil {
		return fileSig{}, err
	}
	return sigOf(st), f.Close()
}

// replaceFile writes a file under a temporary name, syncs the file and renames it. The caller must
// sync the folder to make the name durable.
func replaceFile(path string, data []byte, mode os.FileMode) (fileSig, error) {
	st, err := durable.Rename(path, func(f *os.File) error { return durable.Fill(f, data, mode) })
	if err != nil {
		return fileSig{}, err
	}
	return sigOf(st), nil
}
