package regular

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"saltern/test/await"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	name := func(n string) string { return filepath.Join(dir, n) }
	os.WriteFile(name("f"), []byte("x"), 0o600)
	os.Symlink("f", name("link"))
	os.Symlink("loop", name("loop"))

	if err := syscall.Mkfifo(name("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}

	os.Symlink("fifo", name("tofifo"))
	for _, n := range []string{"f", "link"} {
		f, fi, err := Open(name(n))
		if err != nil || fi.Size() != 1 {
			t.Fatalf("%s: %v", n, err)
		}
		f.Close()
	}

	for _, n := range []string{"fifo", "tofifo", "missing", "loop", ".", "f/x", "/dev/null"} {
		done := make(chan error, 1)
		go func() { _, _, err := Open(name(n)); done <- err }()
		select {
		case err := <-done:
			if !Missing(err) {
				t.Errorf("%s: %v", n, err)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%s blocks", n)
		}
	}

	if Missing(errors.New("disk on fire")) || Missing(syscall.EIO) || !Missing(fs.ErrNotExist) {
		t.Error("Missing")
	}
}

func TestID(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	os.WriteFile(name, []byte("x"), 0o600)
	id := func() ID {
		fi, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}

		id, ok := IDOf(fi)
		if !ok {
			t.Fatal("no id")
		}

		return id
	}

	a := id()
	if a != id() || a.Newest() < a.Mtime {
		t.Error("the id of an unchanged file changed")
	}

	// The times of a disk are as coarse as the kernel's ticks.
	await.That(t, "another id after a change of the content with the old mtime", func() bool {
		os.WriteFile(name, []byte("y"), 0o600)
		os.Chtimes(name, time.Unix(0, a.Mtime), time.Unix(0, a.Mtime))
		return a != id()
	})
}
