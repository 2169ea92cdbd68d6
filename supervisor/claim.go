package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/durable"
	"saltern/internal/filelock"
)

// claim keeps other supervisors away from a node. From the start of the program to its end, it
// locks a file beside appliance.yaml. It also locks the data directory, so that no node with
// another configuration file can use that directory. The locks end with this process. Its children
// do not keep them.
type claim struct {
	log     *slog.Logger
	config  *os.File // may be nil: the file cannot be locked
	dataDir *os.File // may be nil: nothing is locked
}

// claimTakes bounds the wait for a lock: another supervisor may be ending, or a child of a killed
// supervisor may not have closed the inherited lock yet.
const claimTakes = 2 * time.Second

// claimConfig locks the node of a configuration file. Its error says that another supervisor runs
// the node.
func claimConfig(ctx context.Context, configPath string, log *slog.Logger) (*claim, error) {
	path := filepath.Join(filepath.Dir(configPath), ".lock-"+filepath.Base(configPath))
	f, err := lockNew(ctx, path)
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return nil, fmt.Errorf("another supervisor%s runs the node of %s; next: applianced status", readHolder(path), configPath)
	case err != nil: // for example a read-only file system, on which nobody can change the node's settings either
		log.Warn("a second supervisor of this node would not be noticed at its start", "path", path, "error", err)
		return &claim{log: log}, nil
	}

	_ = f.Truncate(0)
	_, _ = fmt.Fprintf(f, "%d\n", os.Getpid()) // readHolder reads this number

	return &claim{log: log, config: f}, nil
}

// lockNew creates the file at path, or opens the one that a killed supervisor has left, and locks it.
func lockNew(ctx context.Context, path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := filelock.Wait(ctx, f, claimTakes); err != nil {
			_ = f.Close()
			return nil, err
		}
		if isAt(f, path) {
			return f, nil
		}
		_ = f.Close() // the holder of the lock has removed the file at its end
	}
}

// isAt reports whether the open file f is the one at path.
func isAt(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(opened, now)
}

// readHolder returns the number of the process that has locked the file at path, for a message.
func readHolder(path string) string {
	b, err := durable.Read(path, 64)
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return fmt.Sprintf(" (process %.20q)", pid)
	}
	return ""
}

// lockDataDir locks a data directory instead of the one that was locked before. Its error says that
// another supervisor uses the directory.
func (c *claim) lockDataDir(ctx context.Context, dir string) error {
	// A reset removes the directory. A directory created later at the same path is not the locked
	// one.
	if c.dataDir != nil && isAt(c.dataDir, dir) {
		return nil
	}
	c.unlockDataDir()

	err := os.MkdirAll(dir, 0o755)
	var f *os.File
	if err == nil {
		f, err = os.Open(dir)
	}
	if err == nil {
		err = filelock.Wait(ctx, f, claimTakes)
	}

	switch {
	case errors.Is(err, filelock.ErrHeld):
		_ = f.Close()
		return fmt.Errorf("data_dir: %s is the data directory of another supervisor on this machine; "+
			"each node needs its own", dir)
	case err != nil: // no error is returned: the code that uses the directory will report the fault
		c.log.Warn("a second supervisor of this data directory would not be noticed", "path", dir, "error", err)
		if f != nil {
			_ = f.Close()
		}
		return nil
	}

	c.dataDir = f
	return nil
}

func (c *claim) unlockDataDir() {
	if c.dataDir != nil {
		_ = c.dataDir.Close()
		c.dataDir = nil
	}
}

// release ends both locks, and removes the lock file.
func (c *claim) release() {
	c.unlockDataDir()
	if c.config != nil {
		_ = os.Remove(c.config.Name())
		_ = c.config.Close()
	}
}
