package storage

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
)

// formMark is the name of the file in Config.Dir that exists if this node formed its cluster.
const formMark = "forms-the-volume"

// AllowForm records that this node forms the cluster: its manager may create the volume, once. The
// set-up calls AllowForm before the first start on a volume.
func AllowForm(s *settings.Settings) error {
	dir := filepath.Join(s.DataDir, "storage")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	if _, err := layout.WriteFile(filepath.Join(dir, formMark), []byte("This node formed the cluster.\n"),
		0o600); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	return nil
}

// FromSettings returns the configuration for a node with these settings. executable is
// applianced itself, which also runs as the helper.
func FromSettings(s *settings.Settings, executable string, master layout.Account, log *slog.Logger) Config {
	dir := filepath.Join(s.DataDir, "storage")
	return Config{
		Log:       log,
		Self:      s.Node,
		Volume:    s.Storage.Volume,
		Mount:     s.Storage.Path,
		Bricks:    s.Storage.Bricks,
		Dir:       dir,
		Form:      exists(filepath.Join(dir, formMark)),
		Mirror:    s.MirrorDir(),
		Allowed:   filepath.Join(s.RuntimeDir, "glusterd-allowed"),
		Helper:    []string{executable, "storage", "helper"},
		UID:       master.UID,
		GID:       master.GID,
		TwoCopies: s.Storage.TwoCopies,
	}
}
