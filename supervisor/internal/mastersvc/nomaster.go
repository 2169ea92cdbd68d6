package mastersvc

import (
	"os"
	"path/filepath"

	"saltern/internal/control"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
)

// WriteNoMaster writes the file that tells Salt's tools that this node has no salt-master.
func WriteNoMaster(s *settings.Settings) error {
	if err := os.MkdirAll(s.MasterConf(), 0o755); err != nil {
		return err
	}
	text := "this node is the arbiter of cluster " + s.Cluster +
		" and runs no salt-master; use Salt's tools on another node: applianced nodes lists them\n"
	_, err := layout.WriteFile(filepath.Join(s.MasterConf(), control.NoMasterFile), []byte(text), 0o644)
	return err
}
