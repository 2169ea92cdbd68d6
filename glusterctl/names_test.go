package glusterctl

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Every name is looked at, one that went meanwhile is none, and what is torn is
// told once and below a bound.
func TestLookUp(t *testing.T) {
	root := t.TempDir()
	for i := range 100 {
		dir := filepath.Join(root, fmt.Sprintf("d%d", i%3))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var mu sync.Mutex
	seen := map[string]int{}
	look := func(fault func(string) error) (namesReply, error) {
		clear(seen)
		return lookUp(root, 0, func(p string) error {
			mu.Lock()
			defer mu.Unlock()
			seen[p]++
			if err := fault(filepath.Base(p)); err != nil {
				return &fs.PathError{Op: "lstat", Path: p, Err: err}
			}
			return nil
		})
	}

	r, err := look(func(name string) error {
		switch name {
		case "f7", "f8":
			return syscall.EIO
		case "f9":
			return syscall.ENOENT
		}
		return nil
	})
	if err != nil || r.Looked != 103 || len(seen) != 103 {
		t.Fatalf("%+v %v, %d seen", r, err, len(seen))
	}

	if want := []string{"/d1/f7", "/d2/f8"}; !slices.Equal(r.Torn, want) {
		t.Errorf("torn %q, want %q", r.Torn, want)
	}

	if r, err = look(func(string) error { return syscall.EIO }); err != nil || len(r.Torn) != mostSettled {
		t.Errorf("%d torn, %v", len(r.Torn), err)
	}

	if _, err = look(func(string) error { return syscall.ENOTCONN }); err == nil {
		t.Error("a volume that is gone is taken for a good one")
	}
}

// A directory that is no volume is not looked at.
func TestNamesOfADirectory(t *testing.T) {
	var errOut strings.Builder
	if code := HelperMain([]string{"names", "cluster", t.TempDir()}, &errOut, &errOut); code == 0 || !strings.Contains(errOut.String(), "no volume is mounted") {
		t.Errorf("%d %s", code, errOut.String())
	}
}
