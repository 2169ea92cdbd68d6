package fileserver

import (
	"fmt"
	"path/filepath"
	"testing"

	"saltern/master/value"
	"saltern/test/smalldisk"
)

// Files that minions push end before the disk is full, whatever their quota (finding 17 of
// the second audit).
func TestPushedFilesKeepRoom(t *testing.T) {
	disk := smalldisk.Mount(t, 48, 5000)
	s := server(t,
		Config{
			Cachedir: filepath.Join(disk, "cache"),
			Recv:     RecvConfig{Enabled: true, MaxSize: 1 << 30, Quota: 1 << 30, MaxFiles: 100_000},
		})

	push := func(name string, data []byte) bool {
		v, err := s.Call(t.Context(), "_file_recv", "min1",
			value.NewMap("path", []any{name}, "loc", 0, "data", data, "id", "min1"))
		if err != nil {
			t.Fatal(err)
		}
		return v.(bool)
	}

	chunk := make([]byte, 1<<20)
	taken := 0
	for i := range 60 {
		if push(fmt.Sprint("f", i), chunk) {
			taken++
		}
	}

	if bytes, _ := smalldisk.Free(t, disk); taken < 40 || bytes < 2<<20 {
		t.Errorf("%d are taken, %d bytes are left", taken, bytes)
	}

	small := smalldisk.Mount(t, 48, 400)
	s = server(t,
		Config{
			Cachedir: filepath.Join(small, "cache"),
			Recv:     RecvConfig{Enabled: true, MaxSize: 1 << 30, Quota: 1 << 30, MaxFiles: 100_000},
		})

	for i := range 500 {
		push(fmt.Sprint("f", i), []byte("x"))
	}

	if _, files := smalldisk.Free(t, small); files < 18 || files > 25 {
		t.Errorf("%d files are left", files)
	}
}
