package python

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/room"
	"saltern/test/smalldisk"
	made "saltern/test/wheel"
)

// A wheel that unpacks to more than there is room for ends with room left (finding 17 of
// the second audit).
func TestWheelKeepsRoom(t *testing.T) {
	path := made.Wheel{Name: "big", Version: "1.0", Files: map[string]string{"big/__init__.py": strings.Repeat("#", 24<<20)}}.Write(t, t.TempDir())
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	w, err := openWheel(root, filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	disk := smalldisk.Mount(t, 20, 5000)
	if err := build(filepath.Join(disk, "layer"), []*wheel{w}); !errors.Is(err, room.ErrFull) {
		t.Error(err)
	}
	if bytes, _ := smalldisk.Free(t, disk); bytes < 1<<19 {
		t.Errorf("%d bytes are left", bytes)
	}
}
