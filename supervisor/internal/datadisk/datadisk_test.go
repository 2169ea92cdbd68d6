package datadisk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/supervisor/settings"
)

// A machine without a data disk has nothing to mount, and none is made of
// something else.
func TestNoDisk(t *testing.T) {
	cfg := settings.Default("n1")
	cfg.DataDir = t.TempDir()
	cfg.Storage.Kind = settings.VolumeStorage
	cfg.Storage.Bricks = filepath.Join(cfg.DataDir, "bricks")

	if err := Mount(t.Context(), &cfg); err != nil {
		t.Errorf("no data disk: %v", err)
	}

	if err := Prepare(t.Context(), &cfg, filepath.Join(cfg.DataDir, "none"), true); err == nil ||
		!strings.Contains(err.Error(), "there is no disk") {
		t.Errorf("a disk that is not there: %v", err)
	}

	if files, _ := os.ReadDir(cfg.DataDir); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

func TestMountText(t *testing.T) {
	text := mountText("/dev/vdb", "/var/lib/saltern/bricks")
	for _, want := range []string{"What=/dev/vdb\n", "Where=/var/lib/saltern/bricks\n", "Type=xfs\n",
		"nosuid", "Before=glusterd.service\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}

	if strings.Contains(text, "umount.target") {
		t.Errorf("a shutdown unmounts the disk before its process has ended:\n%s", text)
	}
}
