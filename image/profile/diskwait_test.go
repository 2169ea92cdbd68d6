package profile

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestDiskIsWaitedFor: the initial RAM disk takes the time from the file that its scripts source after
// each other, and only when it exceeds its own 30 seconds (initramfs-tools' scripts/local). On a host
// with a tenth of a processor for the machine the disk took longer, and the machine rebooted for ever.
func TestDiskIsWaitedFor(t *testing.T) {
	const path = "overlay/etc/initramfs-tools/scripts/init-premount/saltern"
	script, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for _, shell := range shells() {
		t.Run(strings.Join(shell, " "), func(t *testing.T) {
			conf := filepath.Join(t.TempDir(), "param.conf")
			text := strings.ReplaceAll(string(script), "/conf/param.conf", conf)
			run := func(arguments ...string) string {
				args := slices.Concat(shell[1:], []string{"-c", text, "sh"}, arguments)
				out, err := exec.Command(shell[0], args...).CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				return string(out)
			}

			run("prereqs")
			if _, err := os.Stat(conf); err == nil {
				t.Error("asked for what it needs, it sets the time")
			}

			run()
			out, err := exec.Command("sh", "-c", `. "$0"; echo "$ROOTDELAY"`, conf).Output()
			if seconds, _ := strconv.Atoi(strings.TrimSpace(string(out))); err != nil || seconds < 120 {
				t.Errorf("it waits %q seconds: %v", out, err)
			}
		})
	}
}
