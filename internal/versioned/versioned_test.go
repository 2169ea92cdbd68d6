package versioned

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Contents of these tests are "VERSION words".
func version(b []byte) (uint64, error) {
	n, _, _ := strings.Cut(string(b), " ")
	return strconv.ParseUint(n, 10, 64)
}

func file(t *testing.T) File {
	t.Helper()
	return File{Path: filepath.Join(t.TempDir(), "record"), Mode: 0o640, Limit: 1 << 16, Version: version}
}

func write(t *testing.T, f File, expect uint64, text string) {
	t.Helper()
	if err := f.Write(expect, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, f File, text string) {
	t.Helper()
	if b, _, err := f.Read(); err != nil || string(b) != text {
		t.Errorf("read %q, %v; wanted %q", b, err, text)
	}
}

func TestWriteAndRead(t *testing.T) {
	f := file(t)
	if _, _, err := f.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is there: %v", err)
	}

	write(t, f, 0, "1 a")
	if err := f.Write(0, []byte("1 b")); !errors.Is(err, ErrConflict) {
		t.Errorf("a second first version: %v", err)
	}

	write(t, f, 1, "5 c") // versions may leap
	want(t, f, "5 c")
	for _, bad := range []string{"5 again", "4 back", "6 " + strings.Repeat("x", 1<<16), "x"} {
		if err := f.Write(5, []byte(bad)); err == nil || errors.Is(err, ErrConflict) {
			t.Errorf("%.10s: %v", bad, err)
		}
	}

	if b, err := os.ReadFile(f.Path); err != nil || string(b) != "5 c" {
		t.Errorf("the file itself: %q, %v", b, err)
	}

	if st, err := os.Stat(f.Path); err != nil || st.Mode() != 0o640 {
		t.Errorf("mode: %v, %v", st, err)
	}
}

// Of many that write at the same time each change is made on top of all before
// it.
func TestManyWriters(t *testing.T) {
	f := file(t)
	write(t, f, 0, "1")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; n < 10; {
				b, v, err := f.Read()
				if err != nil {
					t.Error(err)
					return
				}

				_, words, _ := strings.Cut(string(b), " ")
				switch err := f.Write(v, fmt.Appendf(nil, "%d %s,%d.%d", v+1, words, i, n)); {
				case err == nil:
					n++
				case !errors.Is(err, ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}

	wg.Wait()
	b, v, err := f.Read()
	if err != nil || v != 81 {
		t.Fatalf("version %d, %v", v, err)
	}

	for i := range 8 {
		for n := range 10 {
			if !strings.Contains(string(b)+",", fmt.Sprintf(",%d.%d,", i, n)) {
				t.Errorf("the change %d.%d is lost", i, n)
			}
		}
	}
}

// A writer that stops after each of its steps.
func TestWriterStops(t *testing.T) {
	f := file(t)
	write(t, f, 0, "1 a")
	tmp, err := f.temporary([]byte("2 b"))
	if err != nil {
		t.Fatal(err)
	}

	want(t, f, "1 a") // not made yet
	if err := os.Link(tmp, f.successor(1, []byte("1 a"))); err != nil {
		t.Fatal(err)
	}

	want(t, f, "2 b") // made, and put in its place by the reader
	if b, _ := os.ReadFile(f.Path); string(b) != "2 b" {
		t.Errorf("the file itself: %q", b)
	}

	write(t, f, 2, "3 c")
	if err := os.Rename(tmp, f.Path); err != nil { // it wakes up again
		t.Fatal(err)
	}

	want(t, f, "3 c")
	write(t, f, 3, "4 d")
	want(t, f, "4 d")
}

// The answer to link(2) was lost.
func TestLinkThatWasMade(t *testing.T) {
	f := file(t)
	a, _ := f.temporary([]byte("1 a"))
	if err := os.Link(a, a+"x"); err != nil || !isSameFile(a, a+"x") || isSameFile(a, f.Path) {
		t.Errorf("%v", err)
	}
	b, _ := f.temporary([]byte("1 a"))
	if isSameFile(a, b) {
		t.Error("two files are one")
	}
}

// A writer that was held up until the successor of its version was swept away.
func TestLateWriter(t *testing.T) {
	f := file(t)
	write(t, f, 0, "1 a")
	late := f
	late.Version = func(b []byte) (uint64, error) {
		if string(b) == "1 a" { // it has read, and the others go on
			late.Version = version
			if _, now, _ := f.Read(); now == 1 {
				write(t, f, 1, "2 b")
				write(t, f, 2, "3 c")
				if err := os.Remove(f.successor(1, []byte("1 a"))); err != nil {
					t.Fatal(err)
				}
			}
		}

		return version(b)
	}

	if err := late.Write(1, []byte("2 late")); !errors.Is(err, ErrConflict) {
		t.Errorf("late: %v", err)
	}

	want(t, f, "3 c")
}

func TestSweep(t *testing.T) {
	f := file(t)
	dir := filepath.Dir(f.Path)
	left, _ := f.temporary([]byte("1 left by a crash"))
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	var v uint64
	for ; v < 200; v++ {
		write(t, f, v, strconv.FormatUint(v+1, 10))
		if v == 150 {
			old := time.Now().Add(-time.Hour)
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if e.Name() != "record" {
					_ = os.Chtimes(filepath.Join(dir, e.Name()), old, old)
				}
			}
		}
	}

	entries, _ := os.ReadDir(dir)
	if len(entries) > keepVersions+2*sweepEvery || len(entries) < keepVersions {
		t.Errorf("%d files are left", len(entries))
	}

	if _, err := os.Stat(left); err == nil {
		t.Error("what a crash left is still there")
	}

	if _, err := os.Stat(filepath.Join(dir, "other")); err != nil {
		t.Error("somebody else's file is gone")
	}

	want(t, f, "200")
}

// Of several that make the same file or directory one does, and all find it.
func TestCreateAndMkdir(t *testing.T) {
	dir := t.TempDir()
	var made atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			ok, err := Create(filepath.Join(dir, "file"), fmt.Appendf(nil, "%d", i), 0o400)
			if err != nil {
				t.Error(err)
			}

			if ok {
				made.Add(1)
			}

			err = Mkdir(filepath.Join(dir, "folder"), 0o750)
			if err == nil {
				_, err = Create(filepath.Join(dir, "folder", strconv.Itoa(i)), nil, 0o600)
			}

			if err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()
	if made.Load() != 1 {
		t.Errorf("%d made the file", made.Load())
	}

	entries, _ := os.ReadDir(dir)
	inside, _ := os.ReadDir(filepath.Join(dir, "folder"))
	if len(entries) != 2 || len(inside) != 8 {
		t.Errorf("%v, %v", entries, inside)
	}

	if st, err := os.Stat(filepath.Join(dir, "folder")); err != nil || st.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", st, err)
	}

	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := Mkdir(filepath.Join(dir, "x"), 0o700); err == nil {
		t.Error("a file was taken for a directory")
	}
}

func TestDamaged(t *testing.T) {
	f := file(t)
	write(t, f, 0, "1 a")
	if err := os.WriteFile(f.successor(1, []byte("1 a")), []byte("1 round"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, _, err := f.Read(); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a ring of versions: %v", err)
	}

	_ = os.Remove(f.successor(1, []byte("1 a")))
	if err := os.WriteFile(f.Path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, _, err := f.Read(); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no version: %v", err)
	}

	if err := f.Write(0, []byte("1 a")); err == nil {
		t.Error("a damaged file was replaced")
	}
}
