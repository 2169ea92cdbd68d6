// Package durable replaces and reads small files: what a machine that loses
// power must find whole, and what somebody else may have put in a file's place.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace puts content in the place of a file: a file beside it is written,
// synced and renamed, then the folder is synced. Readers see the old content or
// the new one, and so does the machine after a crash. The other file's name
// begins with ".tmp-", so that readers of the folder pass over it.
func Replace(path string, content []byte, mode fs.FileMode) error {
	return ReplaceWith(path, func(f *os.File) error { return Fill(f, content, mode) })
}

// ReplaceWith is Replace for a file that write fills; it has mode 0600 until
// write changes that.
func ReplaceWith(path string, write func(*os.File) error) error {
	if _, err := Rename(path, write); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Rename is ReplaceWith without the sync of the folder, for callers who sync it
// once for many files, or need not know that it can be: until then a crash may
// bring the old file back. The FileInfo is of what was written.
func Rename(path string, write func(*os.File) error) (st fs.FileInfo, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*") // mode 0600
	if err != nil {
		return nil, err
	}

	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		st, err = f.Stat()
	}

	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}

	if err != nil {
		_ = os.Remove(f.Name())
	}

	return st, err
}

// Fill writes all of a file and gives it a mode, whatever the umask. It neither
// syncs nor closes it.
func Fill(f *os.File, content []byte, mode fs.FileMode) error {
	_, err := f.Write(content)
	if err == nil && mode != 0o600 { // which new files have
		err = f.Chmod(mode)
	}
	return err
}

// Swap replaces a file like Replace but does not wait for the disk: what it
// writes is worth nothing after a crash. It writes to path with ".new" behind
// it, so only one process may replace the file, in a folder of its own; the
// umask counts.
func Swap(path string, content []byte, mode fs.FileMode) error {
	err := os.WriteFile(path+".new", content, mode)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		_ = os.Remove(path + ".new")
	}
	return err
}

// SyncDir makes durable which names are in a folder.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err = errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync the folder %s: %w", dir, err)
	}
	return nil
}
