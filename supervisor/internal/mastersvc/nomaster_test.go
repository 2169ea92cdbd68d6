package mastersvc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/internal/control"
	"saltern/supervisor/settings"
)

func TestNoMaster(t *testing.T) {
	cfg := settings.Default("n3")
	cfg.DataDir = t.TempDir()
	cfg.RuntimeDir = t.TempDir()
	cfg.Cluster = "harbour"
	for range 2 {
		if err := WriteNoMaster(&cfg); err != nil {
			t.Fatal(err)
		}
	}

	text, err := os.ReadFile(filepath.Join(cfg.MasterConf(), control.NoMasterFile))
	if err != nil || !strings.HasPrefix(string(text), "this node is the arbiter of cluster harbour and runs no") {
		t.Errorf("%q %v", text, err)
	}
}
