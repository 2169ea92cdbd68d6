package health

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"saltern/internal/durable"
)

// Names of the health files of Salt 3008.
const (
	startup = "startup"
	ready   = "ready"
	alive   = "alive"
)

// Signs are the health files of Salt 3008 (<cachedir>/health). startup exists from the start on,
// ready exists once the master serves, and alive is renewed while the master serves.
type Signs struct {
	Dir string // the master's option cachedir
	Now func() time.Time
}

func (s Signs) filePath(name string) string { return filepath.Join(s.Dir, "health", name) }

func (s Signs) writeTime(name string) error {
	return os.WriteFile(s.filePath(name), []byte(strconv.FormatInt(s.Now().Unix(), 10)), 0o644)
}

// Startup removes the files of an earlier run and creates the file startup.
func (s Signs) Startup() error {
	if err := os.MkdirAll(filepath.Dir(s.filePath("x")), 0o755); err != nil {
		return fmt.Errorf("create the health folder: %w", err)
	}
	for _, n := range []string{startup, ready, alive} {
		if err := os.Remove(s.filePath(n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("clear the health folder: %w", err)
		}
	}
	return s.writeTime(startup)
}

// Alive renews the file alive.
func (s Signs) Alive() error { return s.writeTime(alive) }

// Ready creates the file ready, and writes pidFile unless that is "".
func (s Signs) Ready(pidFile string) error {
	if err := s.writeTime(ready); err != nil {
		return fmt.Errorf("write the health folder: %w", err)
	}
	if pidFile == "" {
		return nil
	}

	err := os.MkdirAll(filepath.Dir(pidFile), 0o755)
	if err == nil {
		err = durable.Replace(pidFile, []byte(strconv.Itoa(os.Getpid())), 0o644)
	}

	if err != nil {
		return fmt.Errorf("write the pid file: %w", err)
	}

	return nil
}
