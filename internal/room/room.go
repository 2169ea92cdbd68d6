// Package room keeps some of a file system free while something of unknown size is written to it:
// an archive may unpack to a thousand times its size, or to a million empty files. A full disk
// stops its node, and a full shared volume stops all nodes.
package room

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Keep is the room that a write must leave free.
type Keep struct {
	Bytes int64
	Files int64 // number of inodes
}

// Usual returns the default Keep: the room that a node needs to continue for a while.
func Usual() Keep { return Keep{Bytes: 256 << 20, Files: 10_000} }

// smallPart limits what a small file system must keep free: at most 1/smallPart of its size.
const smallPart = 20

// ErrFull is wrapped by each error about missing room in a file system.
var ErrFull = errors.New("not enough room")

// IsFull reports whether a write failed because its file system, or a quota of it, has no more room.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// fullError is the error of a file system without room. Its text is for an administrator.
type fullError struct{ text string }

func (e *fullError) Error() string { return e.text }
func (e *fullError) Unwrap() error { return ErrFull }

// free is the room left in a file system.
type free struct {
	bytes, files int64
	hasFiles     bool // false: the file system creates inodes as needed
	keep         Keep
}

// askFree returns how much room a file system has. On a network file system the call may hang.
func askFree(dir string, keep Keep) (f free, err error) {
	var st unix.Statfs_t
	for {
		err = unix.Statfs(dir, &st)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}

	if err != nil {
		return free{}, fmt.Errorf("look how much room %s has: %w", dir, err)
	}

	block := int64(st.Bsize)
	f = free{
		bytes:    int64(st.Bavail) * block,
		files:    int64(st.Ffree),
		hasFiles: st.Files > 0,
		keep:     keep,
	}

	f.keep.Bytes = min(keep.Bytes, int64(st.Blocks)*block/smallPart)
	f.keep.Files = min(keep.Files, int64(st.Files)/smallPart)
	return f, nil
}

// missing returns nil if there is room for addBytes more bytes and addFiles more files, otherwise
// an error that says what is missing.
func (f free) missing(dir string, addBytes, addFiles int64) error {
	const mib = 1 << 20
	if f.bytes-addBytes < f.keep.Bytes {
		if addBytes == 0 {
			return &fullError{fmt.Sprintf("%s has %d MiB left, and %d MiB are to stay free", dir,
				f.bytes/mib, f.keep.Bytes/mib)}
		}
		return &fullError{fmt.Sprintf("%s has %d MiB free, %d MiB are needed", dir, f.bytes/mib,
			(addBytes+f.keep.Bytes+mib-1)/mib)}
	}

	if f.hasFiles && f.files-addFiles < f.keep.Files {
		if addFiles == 0 {
			return &fullError{fmt.Sprintf("%s has room for %d more files (inodes), and %d are to stay free",
				dir, f.files, f.keep.Files)}
		}
		return &fullError{fmt.Sprintf("%s has room for %d more files (inodes), %d are needed", dir, f.files,
			addFiles+f.keep.Files)}
	}

	return nil
}

// Check returns nil if dir has room for addBytes more bytes and addFiles more files, in addition to
// keep. Otherwise it returns an [ErrFull] that states the numbers.
func Check(dir string, addBytes, addFiles int64, keep Keep) error {
	f, err := askFree(dir, keep)
	if err != nil {
		return err
	}
	return f.missing(dir, addBytes, addFiles)
}

// askBytes and askFiles are how much may be written through a [Watch] before it reads the free room
// again. It must read it again because other programs also write to the file system.
const (
	askBytes = 4 << 20
	askFiles = 200
)

// Watch stops writes below a folder before the file system is full. One goroutine uses it. A nil
// Watch allows every write.
type Watch struct {
	dir   string
	keep  Keep
	bytes int64 // bytes that may be written before the next refresh
	files int64
}

// Guard returns a Watch of a folder. It returns [ErrFull] if the file system has too little room
// already.
func Guard(dir string, keep Keep) (*Watch, error) {
	w := &Watch{dir: dir, keep: keep}
	return w, w.refresh()
}

// refresh reads how much room is free, and sets how much may be written before the next refresh.
func (w *Watch) refresh() error {
	f, err := askFree(w.dir, w.keep)
	if err != nil {
		return err
	}
	if err := f.missing(w.dir, 0, 0); err != nil {
		return err
	}
	w.bytes = min(askBytes, f.bytes-f.keep.Bytes+1)
	w.files = askFiles
	if f.hasFiles {
		w.files = min(askFiles, f.files-f.keep.Files+1)
	}
	return nil
}

// Bytes returns an error if there is too little room to write n more bytes. Call it before writing.
func (w *Watch) Bytes(n int) error {
	if w == nil {
		return nil
	}
	w.bytes -= int64(n)
	if w.bytes > 0 {
		return nil
	}
	return w.refresh()
}

// File returns an error if there is too little room for one more file. Call it before creating a
// file, a folder or a link.
func (w *Watch) File() error {
	if w == nil {
		return nil
	}
	w.files--
	w.bytes -= blockSize // a folder or a long link takes one block
	if w.files > 0 && w.bytes > 0 {
		return nil
	}
	return w.refresh()
}

// blockSize is the size of the smallest file on most file systems.
const blockSize = 4096

// Writer returns a writer that writes to dst until there is too little room.
func (w *Watch) Writer(dst io.Writer) io.Writer { return &writer{w, dst} }

type writer struct {
	watch *Watch
	to    io.Writer
}

// Write implements io.Writer.
func (w *writer) Write(b []byte) (int, error) {
	if err := w.watch.Bytes(len(b)); err != nil {
		return 0, err
	}
	return w.to.Write(b)
}
