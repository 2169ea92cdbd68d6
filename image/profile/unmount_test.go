package profile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVarIsLeftToTheEnd: libmount, by which systemd reads the options of mounts, finds the option
// that keeps /var mounted until all processes have ended (systemd's src/shared/fstab-util.c,
// fstab_is_extrinsic).
func TestVarIsLeftToTheEnd(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts an overlay: needs root")
	}

	for _, shell := range shells() {
		t.Run(strings.Join(shell, " "), func(t *testing.T) {
			dir := t.TempDir()
			table := filepath.Join(dir, "run/mount")
			runFunction(t, shell, "leave_var_to_the_end", table)

			const look = `cd "$1" && mkdir disk && mount -t tmpfs tmpfs disk && mkdir disk/up disk/wk &&
				mount -t overlay -o "lowerdir=/var,upperdir=$1/disk/up,workdir=$1/disk/wk" overlay /var &&
				LIBMOUNT_UTAB="$2/utab" findmnt --mtab -no OPTIONS /var`
			cmd := exec.Command("unshare", "--mount", "sh", "-c", look, "sh", dir, table)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "x-initrd.mount") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
