package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"saltern/durable"
	"saltern/supervisor/settings"
)

// GoodConfDir holds the administrator's option files as they were when the master
// could last be started with them: a broken line must not keep it from starting.
func GoodConfDir(s *settings.Settings) string {
	return filepath.Join(s.DataDir, "etc", "master.d.good")
}

// KeepGood copies the option files of now to GoodConfDir, for the master to read.
func KeepGood(s *settings.Settings, reader Account) error {
	dir := GoodConfDir(s)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("keep the options of the master: %w", err)
	}
	files, _ := filepath.Glob(filepath.Join(s.UserConfDir(), "*.conf"))
	there := map[string]bool{}
	for _, f := range files[:min(len(files), maxUserFiles)] {
		b, _, err := durable.ReadFile(f, maxUserFile, durable.Follow)
		if errors.Is(err, fs.ErrNotExist) { // a link to nothing
			continue
		}
		if err == nil {
			_, err = WriteSecret(filepath.Join(dir, filepath.Base(f)), b, reader)
		}
		if err != nil {
			return fmt.Errorf("keep the options of the master: %w", err)
		}
		there[filepath.Base(f)] = true
	}
	old, err := os.ReadDir(dir)
	for _, e := range old {
		if !there[e.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
