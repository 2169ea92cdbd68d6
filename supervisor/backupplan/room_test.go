package backupplan

import (
	"errors"
	"io"
	"testing"

	"saltern/internal/room"
	"saltern/test/smalldisk"
)

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// A backup to a directory of the node leaves room there (finding 17 of the second audit).
func TestBackupKeepsRoom(t *testing.T) {
	disk := smalldisk.Mount(t, 48, 5000)
	up, err := directory(disk).create(t.Context(), "b", "partial-")
	if err != nil {
		t.Fatal(err)
	}

	if n, err := io.Copy(up, endless{}); !errors.Is(err, room.ErrFull) {
		t.Errorf("%d bytes: %v", n, err)
	}

	if bytes, _ := smalldisk.Free(t, disk); bytes < 2<<20 {
		t.Errorf("%d bytes are left", bytes)
	}

	up.abandon()
	if bytes, _ := smalldisk.Free(t, disk); bytes < 47<<20 {
		t.Errorf("it leaves %d bytes", 48<<20-bytes)
	}
}
