package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/durable"
	"saltern/internal/filelock"
	"saltern/internal/printable"
	"saltern/supervisor/settings"
)

// lockName is the file that an import or a restore locks. Earlier versions of the program lock the
// same file for imports.
const lockName = ".import.lock"

// LockStorage excludes other imports and restores, on this and other nodes, until unlock is called.
// action names what the caller does, for messages.
func LockStorage(s *settings.Settings, action string) (unlock func(), err error) {
	storage := s.StorageDir()
	if err := os.MkdirAll(storage, 0o755); err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}

	path := filepath.Join(storage, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}

	if err := filelock.Try(f); err != nil {
		_ = f.Close()
		if errors.Is(err, filelock.ErrHeld) {
			return nil, fmt.Errorf("%s: %s changes keys and files at this moment; try again when that is done",
				action, lockHolder(path))
		}
		return nil, fmt.Errorf("%s: lock the storage: %w", action, err)
	}

	_ = f.Truncate(0)
	// A caller that is refused the lock reads this line.
	_, _ = fmt.Fprintf(f, "%s (%s) since %s\n", s.Node, action, time.Now().UTC().Format("15:04:05 UTC"))

	return func() { _ = f.Close() }, nil
}

// lockHolder returns which node has the lock, what for, and since when.
func lockHolder(path string) string {
	b, err := durable.Read(path, 1<<10)
	if text := printable.Brief(strings.TrimSpace(string(b)), 100); err == nil && text != "" {
		return text
	}
	return "somebody else"
}

// RemoveStages removes the folders in dir whose name begins with prefix: a killed import or restore
// has left them. The caller must have the lock.
func RemoveStages(dir, prefix string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), prefix) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}
