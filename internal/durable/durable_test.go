package durable_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/durable"
)

func TestReplaceKeepsOldContentUntilTheNewIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := durable.Replace(path, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}

	err := durable.ReplaceWith(path, func(f *os.File) error {
		if _, err := f.WriteString("half"); err != nil {
			return err
		}
		return syscall.ENOSPC
	})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want the error of the writer", err)
	}

	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Errorf("the file holds %q", b)
	}

	st, err := durable.Rename(path, func(f *os.File) error { return durable.Fill(f, []byte("new one"), 0o400) })
	if err != nil {
		t.Fatal(err)
	}

	now, err := os.Stat(path)
	if err != nil || !os.SameFile(st, now) || st.Size() != 7 || now.Mode() != 0o400 {
		t.Errorf("%v, %v, %v", st, now, err)
	}

	if err := durable.Swap(path, []byte("swapped"), 0o600); err != nil {
		t.Fatal(err)
	}

	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
}

func TestReplaceModeDespiteUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	path := filepath.Join(t.TempDir(), "f")
	if err := durable.Replace(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o644 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

func TestSwapLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Swap(path, []byte("x"), 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
}

func TestReadTakesOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(in("file"), []byte("12345"), 0o600), os.Symlink("file", in("link")),
		syscall.Mkfifo(in("pipe"), 0o600), os.Mkdir(in("dir"), 0o700)); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name  string
		limit int64
		links durable.Links
		want  string // of the error
	}{
		{"file", 5, durable.Refuse, ""},
		{"file", 4, durable.Refuse, "it is larger than 4 bytes"},
		{"link", 5, durable.Follow, ""},
		{"link", 5, durable.Refuse, "too many levels of symbolic links"},
		{"pipe", 5, durable.Follow, "it is not a regular file"},
		{"dir", 5, durable.Refuse, "it is not a regular file"},
		{"none", 5, durable.Refuse, "no such file"},
	} {
		b, st, err := durable.ReadFile(in(tt.name), tt.limit, tt.links)
		if tt.want == "" {
			if err != nil || string(b) != "12345" || st.Size() != 5 {
				t.Errorf("%+v: %q, %v", tt, b, err)
			}
			continue
		}

		if pe := (*fs.PathError)(nil); !errors.As(err, &pe) || pe.Path != in(tt.name) ||
			!strings.Contains(err.Error(), tt.want) || b != nil {
			t.Errorf("%+v: %q, %v", tt, b, err)
		}
	}

	// Files of /proc have no size.
	if b, _, err := durable.ReadFile("/proc/self/stat", 1<<16, durable.Refuse); err != nil || len(b) == 0 {
		t.Errorf("/proc: %q, %v", b, err)
	}

	if _, err := durable.Read("/proc/self/stat", 10); err == nil {
		t.Error("a file without a size passed its limit")
	}
}

func TestRetryStale(t *testing.T) {
	for _, tt := range []struct {
		fails     int
		err, want error
		calls     int
	}{
		{0, nil, nil, 1},
		{3, syscall.ESTALE, nil, 4},
		{1, syscall.EIO, syscall.EIO, 1},
		{100, syscall.ESTALE, syscall.ESTALE, 6}, // waits of 2, 4, 8, 16, 32 ms
	} {
		synctest.Test(t, func(t *testing.T) {
			calls, began := 0, time.Now()
			err := durable.RetryStale(50*time.Millisecond, func() error {
				calls++
				if calls <= tt.fails {
					return fmt.Errorf("read: %w", tt.err)
				}
				return nil
			})
			if !errors.Is(err, tt.want) || calls != tt.calls {
				t.Errorf("%+v: %v after %d calls", tt, err, calls)
			}

			if waited := time.Since(began); waited > 62*time.Millisecond {
				t.Errorf("%+v: waited %v", tt, waited)
			}
		})
	}
}

// TestFilesInTurn: callers of a file system that hangs get an error in time, and the next one its turn when it answers.
func TestFilesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := errors.New("silent")
		turn := make(chan struct{}, 1)
		answers := make(chan struct{})
		hangs := func() error { <-answers; return nil }
		for range 3 {
			began := time.Now()
			err := durable.InTurn(t.Context(), turn, time.Second, silent, hangs)
			if err != silent || time.Since(began) != time.Second {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		}

		close(answers)
		failed := errors.New("failed")
		if err := durable.InTurn(t.Context(), turn, time.Second, silent, func() error { return failed }); err != failed {
			t.Errorf("after it has answered: %v", err)
		}
	})
}
