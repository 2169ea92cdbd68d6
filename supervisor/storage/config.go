package storage

import (
	"log/slog"
	"path/filepath"

	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
)

// FromSettings gives the configuration for a node with these settings.
// executable is applianced itself, which is started as the helper.
func FromSettings(s *settings.Settings, executable string, master layout.Account, log *slog.Logger) Config {
	return Config{
		Log: log, Self: s.Node, Volume: s.Storage.Volume, Mount: s.Storage.Path, Bricks: s.Storage.Bricks,
		Dir: filepath.Join(s.DataDir, "storage"), Mirror: s.MirrorDir(),
		Helper: []string{executable, "storage", "helper"},
		UID:    master.UID, GID: master.GID, TwoCopies: s.Storage.TwoCopies,
	}
}
