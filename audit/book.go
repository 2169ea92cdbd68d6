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

// Bounds of what a folder keeps.
const (
	// MaxAge is how long a record is kept; one whose file was begun with older ones
	// goes up to partAge later.
	MaxAge        = 366 * 24 * time.Hour
	partAge       = 30 * 24 * time.Hour
	maxFiles      = 1024 // that are read
	actsSize      = 128 << 20
	strangersSize = 16 << 20
	actsPart      = 8 << 20 // of one file, after which another one begins
	strangersPart = 2 << 20
)

// lockTakes is how long another program may hold the lock of a file: a moment, unless
// it was stopped in it.
const lockTakes = 5 * time.Second

// book is the files of one kind in a folder: NAME.jsonl, to which records are added,
// and older ones, NAME.TIME.jsonl.
type book struct {
	dir, name  string
	part, size int64
}

func acts(dir string) book      { return book{dir, "acts", actsPart, actsSize} }
func strangers(dir string) book { return book{dir, "strangers", strangersPart, strangersSize} }

func (b book) current() string { return filepath.Join(b.dir, b.name+".jsonl") }

// files are the names of all files, the oldest first.
func (b book) files() ([]string, error) {
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

// add writes whole lines at the end of the current file, all of them or none, and
// waits for the disk.
func (b book) add(text []byte, now time.Time) error {
	for range 5 { // another program may begin a new file at the same moment
		f, size, err := b.open()
		if err != nil {
			return err
		}
		if size > 0 && (size+int64(len(text)) > b.part || now.Sub(begun(f, now)) > partAge) {
			err = b.begin(now)
			_ = f.Close()
			if err != nil {
				return err
			}
			continue
		}
		err = write(f, size, text)
		if err == nil { // others need not wait for the disk
			err = errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), unix.Fdatasync(int(f.Fd())))
		}
		return errors.Join(err, f.Close())
	}
	return errors.New("another program keeps beginning new files")
}

// open opens the current file and takes its lock, which closing it gives back.
func (b book) open() (f *os.File, size int64, err error) {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return nil, 0, err
	}
	until := time.Now().Add(lockTakes)
	for {
		f, err := os.OpenFile(b.current(), os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
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

// isCurrent reports whether an open file still has its name, and its size.
func (b book) isCurrent(f *os.File) (int64, bool) {
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return 0, false
	}
	now, err := os.Lstat(b.current())
	return st.Size(), err == nil && os.SameFile(st, now)
}

// stamp is the time in the name of an older file.
const stamp = "20060102T150405.000000000"

// begin gives the current file its old name, and removes what is too old or too much.
// The caller has the lock. The name comes after those of all other files, also where the
// clock was put back, or somebody who waited for the lock brings the time of before.
func (b book) begin(now time.Time) error {
	files, err := b.files()
	if err != nil {
		return err
	}
	at := now.UTC()
	if len(files) > 1 { // the last one is the current
		text, _ := strings.CutPrefix(filepath.Base(files[len(files)-2]), b.name+".")
		if last, err := time.Parse(stamp, strings.TrimSuffix(text, ".jsonl")); err == nil && !at.After(last) {
			at = last.Add(1)
		}
	}
	old := filepath.Join(b.dir, b.name+"."+at.Format(stamp)+".jsonl")
	if err := os.Rename(b.current(), old); err != nil {
		return err
	}
	files[len(files)-1] = old
	return b.prune(files, now)
}

// prune removes the oldest of some files, of which the last is the newest.
func (b book) prune(files []string, now time.Time) error {
	var size int64
	for _, path := range slices.Backward(files) {
		st, err := os.Lstat(path)
		if err != nil {
			continue // somebody else has removed it
		}
		size += st.Size()
		if size > b.size-b.part || now.Sub(st.ModTime()) > MaxAge {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// begun is the time of the first record of a file; now when it cannot be told.
func begun(f *os.File, now time.Time) time.Time {
	const head = `{"time":"`
	var first [64]byte
	n, _ := f.ReadAt(first[:], 0) // of a record that is shorter, all
	text, ok := strings.CutPrefix(string(first[:n]), head)
	text, _, ends := strings.Cut(text, `"`)
	t, err := time.Parse(time.RFC3339Nano, text)
	if !ok || !ends || err != nil {
		return now
	}
	return t
}

// write adds text to a file of this size. What a power cut has left of a line is
// ended first; what cannot be written whole is taken back.
func write(f *os.File, size int64, text []byte) error {
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
