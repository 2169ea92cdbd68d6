package storage

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"saltern/internal/room"
	"saltern/test/smalldisk"
)

// The copy of the files for minions leaves room on the node's disk. What the source has
// no more still goes when nothing has to be written (finding 17 of the second audit).
func TestMirrorKeepsRoom(t *testing.T) {
	c, src, _ := testCopier(t)
	disk := smalldisk.Mount(t, 20, 5000)
	c.spec.Dest = filepath.Join(disk, "copy")
	put(t, filepath.Join(src, "srv/salt/small"), "x")
	pass(t, c)
	put(t, filepath.Join(src, "srv/salt/a-big"), strings.Repeat("x", 24<<20))

	if r, err := c.runPass(); !errors.Is(err, room.ErrFull) {
		t.Errorf("%+v %v", r, err)
	}

	if bytes, _ := smalldisk.Free(t, disk); bytes < 1<<19 {
		t.Errorf("%d bytes are left", bytes)
	}

	if content(filepath.Join(c.spec.Dest, "srv/salt/small")) != "x" {
		t.Error("the copy of before is gone")
	}
}
