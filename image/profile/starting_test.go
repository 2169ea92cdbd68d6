package profile

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestScreenSaysStarting: the machine's own screen, black after the boot loader, has the boot loader's
// line again from the initial RAM disk on. A machine without a screen starts without a complaint.
func TestScreenSaysStarting(t *testing.T) {
	script, err := os.ReadFile("overlay/etc/initramfs-tools/scripts/init-top/saltern")
	if err != nil {
		t.Fatal(err)
	}

	for _, shell := range shells() {
		t.Run(strings.Join(shell, " "), func(t *testing.T) {
			screen := filepath.Join(t.TempDir(), "tty0")
			run := func(device string, arguments ...string) {
				t.Helper()
				text := strings.ReplaceAll(string(script), "/dev/tty0", device)
				args := slices.Concat(shell[1:], []string{"-c", text, "sh"}, arguments)
				if out, err := exec.Command(shell[0], args...).CombinedOutput(); err != nil || len(out) > 0 {
					t.Errorf("%s: %v: %s", device, err, out)
				}
			}

			run(screen, "prereqs")
			if _, err := os.Stat(screen); err == nil {
				t.Error("asked for what it needs, it writes to the screen")
			}

			run("/dev/full")
			run(filepath.Join(screen, "none"))
			run(screen)
			loader, err := os.ReadFile("../disk/grub.go")
			if err != nil {
				t.Fatal(err)
			}

			said, err := os.ReadFile(screen)
			line := strings.TrimSpace(string(said))
			if err != nil || line == "" || !strings.Contains(string(loader), `echo "`+line+`"`) {
				t.Errorf("the screen says %q, which the boot loader does not: %v", line, err)
			}
		})
	}
}
