package saltlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// File is a log file. If another program has moved or deleted the file, the next write reopens the
// path, as Salt's WatchedFileHandler does, so that logrotate need not send a signal. File is safe
// for concurrent use.
type File struct {
	path   string
	report func(string) // gets messages about the file, which cannot go to the file; may be nil

	mu      sync.Mutex
	f       *os.File
	opened  os.FileInfo
	trouble bool // the path cannot be opened, and report was called
}

// OpenFile opens a log file for appending and creates its folder. A new file has mode 0600 as in
// Salt. If the File cannot reopen the path later, it calls report with the reason; report may be
// nil.
func OpenFile(path string, report func(string)) (*File, error) {
	l := &File{path: path, report: report}
	return l, l.Reopen()
}

// Reopen opens the file that is now at the path, and closes the old file.
func (l *File) Reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openFile()
}

func (l *File) openFile() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return fmt.Errorf("create the folder of the log file: %w", err)
	}

	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log file: %w", err)
	}

	opened, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("look at the log file: %w", err)
	}

	if l.f != nil {
		_ = l.f.Close()
	}

	l.f = f
	l.opened = opened
	l.trouble = false
	return nil
}

// Write implements io.Writer. While the File cannot reopen the path, Write appends lines to the
// file that was moved away.
func (l *File) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	there, err := os.Stat(l.path)
	moved := errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(there, l.opened)
	if moved {
		if err := l.openFile(); err != nil && !l.trouble {
			l.trouble = true
			if l.report != nil {
				l.report("lines go on into the file that was moved away: " + err.Error())
			}
		}
	}
	return l.f.Write(b)
}

// Close closes the file.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
