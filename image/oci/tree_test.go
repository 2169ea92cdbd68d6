package oci

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestTree: a folder becomes a layer without setuid and without pipes; long names and
// those beyond ASCII are kept.
func TestTree(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 120)
	err := errors.Join(
		os.Mkdir(filepath.Join(dir, "bin"), 0o750),
		os.WriteFile(filepath.Join(dir, "bin/su"), []byte("program"), 0o755),
		os.Chmod(filepath.Join(dir, "bin/su"), 0o755|os.ModeSetuid),
		os.Symlink("/bin/su", filepath.Join(dir, "bin/link")),
		os.WriteFile(filepath.Join(dir, "Főtanúsítvány"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, long), nil, 0o600),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}

	entries, err := Tree(dir)
	if err != nil {
		t.Fatal(err)
	}

	var w bytes.Buffer
	if _, err := writeLayer(&w, entries, at); err != nil {
		t.Fatal(err)
	}

	var got []string
	r := tar.NewReader(bytes.NewReader(unpacked(t, w.Bytes())))
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		if h.Uid != os.Getuid() {
			t.Errorf("%s belongs to %d", h.Name, h.Uid)
		}
		got = append(got, fmt.Sprintf("%c %s %o %d %s", h.Typeflag, h.Name, h.Mode, h.Size, h.Linkname))
	}

	want := []string{"0 Főtanúsítvány 600 0 ", "5 bin/ 750 0 ", "2 bin/link 777 0 /bin/su",
		"0 bin/su 755 7 ", "0 " + long + " 600 0 "}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	if _, err := Tree(filepath.Join(dir, "none")); err == nil {
		t.Error("a tree that is not there was read")
	}
}
