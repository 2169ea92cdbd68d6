package saltlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// File is a log file. One that was moved away or deleted is opened anew by the next line, as
// Salt's WatchedFileHandler does, so that logrotate needs to tell nobody. It is safe for
// concurrent use.
type File struct {
	path string
	say  func(string) // writes a line where no file is needed

	mu      sync.Mutex
	f       *os.File
	opened  os.FileInfo
	trouble bool // the path cannot be opened anew: it was said
}

// OpenFile opens a log file for appending, mode 0600 as Salt makes it, with
// its folder. say is told when it cannot be opened anew; it may be nil: nobody is told.
func OpenFile(path string, say func(string)) (*File, error) {
	l := &File{path: path, say: say}
	return l, l.Reopen()
}

// Reopen closes the file and opens the path again.
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

// Write implements io.Writer. When the path cannot be opened anew, lines go on into the file
// that was moved away.
func (l *File) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	there, err := os.Stat(l.path)
	moved := errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(there, l.opened)
	if moved {
		if err := l.openFile(); err != nil && !l.trouble {
			l.trouble = true
			if l.say != nil {
				l.say("lines go on into the file that was moved away: " + err.Error())
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
