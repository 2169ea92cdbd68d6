package supervisor

import (
	"strings"
	"testing"
)

func TestMountText(t *testing.T) {
	text := mountText("/dev/vdb", "/var/lib/saltern/bricks")
	for _, want := range []string{"What=/dev/vdb\n", "Where=/var/lib/saltern/bricks\n", "Type=xfs\n", "nosuid", "Before=umount.target glusterd.service\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
