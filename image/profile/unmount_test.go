package profile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVarIsLeftToTheEnd: libmount, by which systemd reads the options of mounts, finds the option
// that keeps /var and the node's data in it mounted until all processes have ended (systemd's src/shared/fstab-util.c,
// fstab_is_extrinsic).
func TestVarIsLeftToTheEnd(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts an overlay: needs root")
	}

	for _, shell := range shells() {
		t.Run(strings.Join(shell, " "), func(t *testing.T) {
			dir := t.TempDir()
			table := filepath.Join(dir, "run/mount")
			runFunction(t, shell, "leave_var_to_the_end", table, "disk-5")

			const look = `cd "$1" && mkdir disk && mount -t tmpfs disk-5 disk && mkdir disk/up disk/wk disk/saltern &&
				mount -t overlay -o "lowerdir=/var,upperdir=$1/disk/up,workdir=$1/disk/wk" overlay /var &&
				mkdir -p /var/lib/saltern && mount --bind disk/saltern /var/lib/saltern &&
				for at in /var /var/lib/saltern; do LIBMOUNT_UTAB="$2/utab" findmnt --mtab -no OPTIONS $at; done`
			cmd := exec.Command("unshare", "--mount", "sh", "-c", look, "sh", dir, table)
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Count(string(out), "x-initrd.mount") != 2 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
