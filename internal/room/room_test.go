package room

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/test/smalldisk"
)

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// What is written without end stops while there is room left.
func TestWriterStops(t *testing.T) {
	dir := smalldisk.Mount(t, 64, 4000)
	keep := Keep{Bytes: 2 << 20, Files: 100}
	w, err := Guard(dir, keep)
	if err != nil {
		t.Fatal(err)
	}

	f, err := os.Create(filepath.Join(dir, "bomb"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	n, err := io.Copy(w.Writer(f), zeros{})
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "MiB left, and 2 MiB are to stay free") {
		t.Errorf("after %d bytes: %v", n, err)
	}

	if bytes, _ := smalldisk.Free(t, dir); bytes < keep.Bytes-64<<10 || bytes > 2*keep.Bytes+askBytes {
		t.Errorf("%d bytes are left", bytes)
	}

	if _, err := Guard(dir, Keep{Bytes: 3 << 20}); !errors.Is(err, ErrFull) {
		t.Errorf("a watch of a full file system: %v", err)
	}
}

// So do files without content.
func TestFilesStop(t *testing.T) {
	dir := smalldisk.Mount(t, 64, 4000)
	w, err := Guard(dir, Keep{Bytes: 1 << 20, Files: 150})
	if err != nil {
		t.Fatal(err)
	}

	for i := 0; ; i++ {
		if err = w.File(); err != nil {
			break
		}
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "more files (inodes), and 150 are to stay free") {
		t.Error(err)
	}

	if _, files := smalldisk.Free(t, dir); files < 145 || files > 160 {
		t.Errorf("%d files are left", files)
	}
}

// Of a small file system a part is kept free, not more than it has.
func TestCheck(t *testing.T) {
	dir := smalldisk.Mount(t, 64, 4000)
	for _, row := range []struct {
		bytes, files int64
		want         string // "": there is room
	}{
		{0, 0, ""},
		{50 << 20, 3000, ""},
		{63 << 20, 0, "MiB free, 67 MiB are needed"},
		{0, 3900, "more files (inodes), 4100 are needed"},
	} {
		err := Check(dir, row.bytes, row.files, Usual())
		if row.want == "" && err != nil ||
			row.want != "" && (!errors.Is(err, ErrFull) || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%d bytes, %d files: %v", row.bytes, row.files, err)
		}
	}

	if err := Check(filepath.Join(dir, "none"), 0, 0, Usual()); err == nil || errors.Is(err, ErrFull) {
		t.Errorf("no folder: %v", err)
	}
}
