// Package durable replaces and reads small files that must survive a power failure intact, or
// that somebody else may have replaced.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace replaces the content of a file: it writes, syncs and renames a file beside it, then
// syncs the folder. Readers see the old content or the new one, and so does the machine after a
// crash. The temporary name begins with ".tmp-", so that readers of the folder skip it.
func Replace(path string, content []byte, mode fs.FileMode) error {
	return ReplaceWith(path, func(f *os.File) error { return Fill(f, content, mode) })
}

// ReplaceWith is Replace for a file that write fills. It has mode 0600 until write changes that.
func ReplaceWith(path string, write func(*os.File) error) error {
	if _, err := Rename(path, write); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Rename is ReplaceWith without the sync of the folder, for callers that sync it once for many
// files, or do not need it: until then a crash may bring the old file back. st describes the new
// file.
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

// Swap replaces a file like Replace but does not wait for the disk: the content is worthless
// after a crash. It writes to path with ".new" appended, so only one process may replace the
// file, in a folder of its own. The umask applies.
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
