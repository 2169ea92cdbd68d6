package backup

import (
	"strings"
	"testing"

	"saltern/supervisor/settings"
)

// TestVolumeHasToBeMounted: a restore writes below the mount point of a volume only when the volume
// is mounted there, by the table of mounts.
func TestVolumeHasToBeMounted(t *testing.T) {
	s := node(t)
	s.Storage.Path = "/srv/my cluster/"
	s.Storage.Volume = "prod"
	const (
		root   = "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
		volume = `40 25 0:50 / /srv/my\040cluster rw - fuse.glusterfs n1:/prod rw` + "\n"
		local  = `41 40 8:2 / /srv/my\040cluster rw - ext4 /dev/sdb rw` + "\n"
		below  = `42 25 0:51 / /srv/my\040cluster/x rw - fuse.glusterfs n1:/prod rw` + "\n"
	)

	for name, tt := range map[string]struct {
		table   string
		mounted bool
	}{
		"mounted":                 {root + volume, true},
		"mounted again":           {root + local + volume, true},
		"not mounted":             {root, false},
		"hidden by another mount": {root + volume + local, false},
		"mounted elsewhere":       {root + below, false},
		"no table":                {"", false},
	} {
		if err := volumeIn(tt.table, s); (err == nil) != tt.mounted {
			t.Errorf("%s: %v", name, err)
		} else if err != nil && !strings.Contains(err.Error(), "the volume prod is not mounted at /srv/my cluster") {
			t.Errorf("%s: the message is %q", name, err)
		}
	}

	if err := RequireVolume(s); err != nil {
		t.Errorf("a node without a volume: %v", err)
	}
	s.Storage.Kind = settings.VolumeStorage
	if err := RequireVolume(s); err == nil {
		t.Error("nothing is mounted, and nothing is said")
	}
}
