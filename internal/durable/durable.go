// Package durable replaces and reads small files that must survive a power failure intact, or that
// another program may have replaced.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace replaces the content of a file: it writes, syncs and renames a temporary file beside it,
// then syncs the folder. Readers, and the machine after a crash, see either the old or the new
// content. The temporary name begins with ".tmp-", so that readers of the folder skip it.
func Replace(path string, content []byte, mode fs.FileMode) error {
	return ReplaceWith(path, func(f *os.File) error { return Fill(f, content, mode) })
}

// ReplaceWith works like Replace, but calls write to write the content. The file has mode 0600
// until write changes the mode.
func ReplaceWith(path string, write func(*os.File) error) error {
	if _, err := Rename(path, write); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Rename works like ReplaceWith, but does not sync the folder: until the folder is synced, a crash
// may bring the old file back. Callers use it if they sync once for many files, or need no sync. st
// describes the new file.
func Rename(path string, write func(*os.File) error) (st fs.FileInfo, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*") // CreateTemp sets mode 0600
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

// Fill writes content to a new file and sets its mode, regardless of the umask. It neither syncs
// nor closes the file.
func Fill(f *os.File, content []byte, mode fs.FileMode) error {
	_, err := f.Write(content)
	if err == nil && mode != 0o600 { // new files have 0600 already
		err = f.Chmod(mode)
	}
	return err
}

// Swap replaces a file like Replace but does not wait for the disk: after a crash the content may
// be lost. It first writes to path with ".new" appended. So only one process may replace the file,
// and nobody else may write to the folder. The umask applies.
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

// SyncDir makes the names in a folder survive a crash.
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
