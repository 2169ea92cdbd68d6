package python

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"saltern/internal/room"
	"saltern/test/smalldisk"
	made "saltern/test/wheel"
)

// A wheel that unpacks to more than there is room for ends with room left (finding 17 of
// the second audit).
func TestWheelKeepsRoom(t *testing.T) {
	w := opened(t,
		made.Wheel{
			Name:    "big",
			Version: "1.0",
			Files:   map[string]string{"big/__init__.py": strings.Repeat("#", 24<<20)},
		})
	disk := smalldisk.Mount(t, 20, 5000)
	if err := unpackLayer(filepath.Join(disk, "layer"), []*wheel{w}); !errors.Is(err, room.ErrFull) {
		t.Error(err)
	}
	if bytes, _ := smalldisk.Free(t, disk); bytes < 1<<19 {
		t.Errorf("%d bytes are left", bytes)
	}
}
