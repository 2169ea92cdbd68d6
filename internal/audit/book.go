package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a folder, in addition to those of [shelves].
const (
	// MaxAge is how long a record is kept. Only whole files are removed, so some records stay up to
	// partAge longer.
	MaxAge   = 366 * 24 * time.Hour
	partAge  = 30 * 24 * time.Hour
	maxFiles = 1024 // how many files of a book are read
)

// book is the set of files of one shelf in a folder: the current file NAME.jsonl, to which records
// are appended, and older files NAME.TIME.jsonl.
type book struct {
	dir string
	shelf
	node, program string // node and program that write the records
}

// fileNames returns the names of all files, the oldest first.
func (b book) fileNames() ([]string, error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if n := e.Name(); strings.HasPrefix(n, b.name+".") && strings.HasSuffix(n, ".jsonl") && n != b.name+".jsonl" {
			out = append(out, filepath.Join(b.dir, n))
		}
	}
	slices.Sort(out)
	return append(out[max(0, len(out)-maxFiles):], b.current()), nil
}

// appendLines links whole lines to the chain, writes all or none of them at the end of the current
// file, and waits for the disk.
func (b book) appendLines(lines [][]byte, now time.Time) error {
	for range 5 { // another program may begin a new file at the same moment
		f, size, err := b.openCurrent()
		if err != nil {
			return err
		}
		again, err := b.addTo(f, size, lines, now)
		err = errors.Join(err, f.Close())
		if err != nil || !again {
			return err
		}
	}
	return errors.New("another program keeps beginning new files")
}

// addTo appends lines to the current file. The caller holds the file's lock; addTo releases the
// lock after writing. If again is true, the file was full and addTo has renamed it: the caller must
// open a new one.
func (b book) addTo(f *os.File, size int64, lines [][]byte, now time.Time) (again bool, err error) {
	at, chained, err := lastLink(f, size)
	if err != nil {
		return false, err
	}

	needs := int64(0)
	for _, line := range lines {
		needs += int64(len(line) + linkRoom)
	}

	full := size+needs > b.part || now.Sub(firstTime(f, now)) > partAge
	if size > 0 && (full || !chained) { // a file without a chain was written by an older version
		return true, b.rotate(now)
	}

	if size == 0 {
		if size, at, err = b.startFile(f, now); err != nil {
			return false, err
		}
	}

	var text []byte
	for _, line := range lines {
		line, at = at.linkRecord(line)
		text = append(text, line...)
	}

	if err := appendText(f, size, text); err != nil {
		return false, err
	}

	// Release the lock before waiting for the disk, so that other programs need not wait for the
	// disk.
	return false, errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), unix.Fdatasync(int(f.Fd())))
}

// openCurrent opens the current file, locks it, and returns it with its size. Closing the file
// releases the lock.
func (b book) openCurrent() (f *os.File, size int64, err error) {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return nil, 0, err
	}

	// Another program holds the lock only for a moment, unless that program is stopped.
	until := time.Now().Add(5 * time.Second)
	for {
		f, err := os.OpenFile(b.current(),
			os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, 0, err
		}

		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			if size, ok := b.isCurrent(f); ok {
				return f, size, nil
			}
		}

		_ = f.Close()
		switch {
		case err != nil && !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return nil, 0, fmt.Errorf("lock %s: %w", b.current(), err)
		case time.Now().After(until):
			return nil, 0, fmt.Errorf("lock %s: another program holds it", b.current())
		}

		time.Sleep(time.Millisecond + rand.N(4*time.Millisecond))
	}
}

// isCurrent reports whether an open file still has its name, and returns the file's size.
func (b book) isCurrent(f *os.File) (int64, bool) {
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return 0, false
	}
	now, err := os.Lstat(b.current())
	return st.Size(), err == nil && os.SameFile(st, now)
}

// stamp is the layout of the time in an older file's name.
const stamp = "20060102T150405.000000000"

// rotate renames the current file to its archive name. The caller holds the lock. The new name
// sorts after those of all other files, even if the clock was put back, or if the caller's time is
// old because it waited for the lock.
func (b book) rotate(now time.Time) error {
	files, err := b.fileNames()
	if err != nil {
		return err
	}
	at := now.UTC()
	if len(files) > 1 { // the last file is the current one
		text, _ := strings.CutPrefix(filepath.Base(files[len(files)-2]), b.name+".")
		if last, err := time.Parse(stamp, strings.TrimSuffix(text, ".jsonl")); err == nil && !at.After(last) {
			at = last.Add(1)
		}
	}
	return os.Rename(b.current(), filepath.Join(b.dir, b.name+"."+at.Format(stamp)+".jsonl"))
}

// tooMuch returns the files to remove because they exceed the bounds of age or size, the oldest
// first. It never returns the newest file, because the chain continues from it.
func (b book) tooMuch(files []string, now time.Time) (remove []string) {
	size := int64(0)
	for i, path := range slices.Backward(files) {
		st, err := os.Lstat(path)
		if err != nil {
			continue // another program has removed the file
		}

		size += st.Size()
		over := size > b.size-b.part || now.Sub(st.ModTime()) > MaxAge
		if over && i < len(files)-1 {
			remove = append(remove, path)
		}
	}

	slices.Reverse(remove)
	return remove
}

// firstTime returns the time of the first record of a file, or now if that is unknown.
func firstTime(f *os.File, now time.Time) time.Time {
	const head = `{"time":"`
	var first [64]byte
	n, _ := f.ReadAt(first[:], 0) // n is smaller when the file is shorter
	text, ok := strings.CutPrefix(string(first[:n]), head)
	text, _, ends := strings.Cut(text, `"`)
	t, err := time.Parse(time.RFC3339Nano, text)
	if !ok || !ends || err != nil {
		return now
	}
	return t
}

// appendText appends text to a file of size bytes. If a power cut has left the last line
// incomplete, it first completes that line. If it cannot write all of the text, it removes the part
// that it wrote.
func appendText(f *os.File, size int64, text []byte) error {
	var last [1]byte
	if size > 0 {
		if _, err := f.ReadAt(last[:], size-1); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if last[0] != '\n' {
			text = append([]byte{'\n'}, text...)
		}
	}
	if _, err := f.Write(text); err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	return nil
}
