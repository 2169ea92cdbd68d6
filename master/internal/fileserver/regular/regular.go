// Package regular opens regular files, and refuses all other files.
//
// Minions choose names of files, and administrators edit the trees. So a name may refer to a FIFO
// without a writer, or to a device. The functions of this package never block on a FIFO and never
// use a device.
package regular

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// ID identifies a version of a file: two reads with the same ID return the same bytes. Two changes
// within one tick of the file system's clock cannot be distinguished, so a caller must not rely on
// an ID shortly after a change: see Newest.
type ID struct {
	Dev, Ino     uint64
	Size         int64
	Mtime, Ctime int64 // in Unix nanoseconds
}

// Newest returns the later of Mtime and Ctime.
func (id ID) Newest() int64 { return max(id.Mtime, id.Ctime) }

// IDOf returns the ID of a file. ok is false if the operating system does not provide it.
func IDOf(fi fs.FileInfo) (id ID, ok bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return ID{}, false
	}
	return ID{uint64(st.Dev), st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, true
}

// Flags must be added to the flags with which a regular file is opened. With them opening a FIFO
// returns at once, and a terminal does not become the controlling terminal.
const Flags = syscall.O_NONBLOCK | syscall.O_NOCTTY

// Open opens a regular file for reading. For any other file it returns fs.ErrNotExist.
func Open(path string) (*os.File, fs.FileInfo, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, fs.ErrNotExist
	}
	f, err := os.OpenFile(path, os.O_RDONLY|Flags, 0)
	if err != nil {
		return nil, nil, err
	}
	return Check(f)
}

// Check returns f if it is a regular file. Otherwise it closes f and returns an error.
func Check(f *os.File) (*os.File, fs.FileInfo, error) {
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

// Missing reports whether an error means that there is no readable file with that name. It returns
// false for a disk error.
func Missing(err error) bool {
	for _, e := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.ENOTDIR, syscall.ELOOP,
		syscall.ENAMETOOLONG, syscall.EINVAL, syscall.ENXIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	var pe *fs.PathError
	// If a path leads out of the root, os.Root returns an error without an errno, and exports no
	// variable for it.
	return errors.As(err, &pe) && strings.Contains(pe.Err.Error(), "escapes")
}
