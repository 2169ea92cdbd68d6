package backup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"saltern/internal/mountinfo"
	"saltern/supervisor/settings"
)

// RequireVolume returns an error if the data of the cluster belong on a volume that is not mounted.
// What was written then would lie on this node's own disk, hidden as soon as the volume is mounted.
// RequireVolume asks only the kernel: a volume may hang.
func RequireVolume(s *settings.Settings) error {
	if !s.OnVolume() {
		return nil
	}
	table, err := os.ReadFile(mountinfo.Self)
	if err != nil {
		return fmt.Errorf("look what is mounted: %w", err)
	}
	return volumeIn(string(table), s)
}

// volumeIn returns an error unless the table of mounts has the volume, which is a FUSE file system.
// The last mount at a mount point is the one in use.
func volumeIn(table string, s *settings.Settings) error {
	point := filepath.Clean(s.StorageDir())
	mounted := false
	for m := range mountinfo.Parse(table) {
		if m.Point == point {
			mounted = strings.HasPrefix(m.Type, "fuse")
		}
	}

	if !mounted {
		return fmt.Errorf("the volume %s is not mounted at %s, and nothing was written; next: applianced storage status",
			s.Storage.Volume, point)
	}
	return nil
}
