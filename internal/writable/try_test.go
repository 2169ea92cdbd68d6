package writable

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"saltern/test/baddisk"
)

// TestTry: a folder that works is left as it was, also when an earlier process was killed
// on the way or somebody has put a link there.
func TestTry(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, ".try"), filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name string
		put  func() error
	}{
		{"nothing", func() error { return nil }},
		{"a file of before", func() error { return os.WriteFile(path, []byte("half"), 0o600) }},
		{"a link", func() error { return os.Symlink(other, path) }},
		{"a pipe", func() error { return syscall.Mkfifo(path, 0o600) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.put(); err != nil {
				t.Fatal(err)
			}

			if err := Try(path); err != nil {
				t.Error(err)
			}

			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("left behind: %v", err)
			}

			if b, err := os.ReadFile(other); string(b) != "kept" {
				t.Errorf("the other file is %q, %v", b, err)
			}
		})
	}

	if err := Try(filepath.Join(dir, "none", ".try")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
}

// TestTryOfBadDisks: what statfs(2) does not show, each with its errno, and that it is over.
func TestTryOfBadDisks(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		harm, mend func(*baddisk.Disk)
		want       []syscall.Errno
	}{
		{"XFS has shut down", baddisk.XFS, (*baddisk.Disk).Break, (*baddisk.Disk).Repair, []syscall.Errno{syscall.EIO}},
		{"ext4 has given up", baddisk.Ext4, (*baddisk.Disk).Break, (*baddisk.Disk).Repair,
			[]syscall.Errno{syscall.EROFS, syscall.EIO}},
		{"read-only", baddisk.Ext4, (*baddisk.Disk).ReadOnly, (*baddisk.Disk).Repair, []syscall.Errno{syscall.EROFS}},
		{"ext4 is full", baddisk.Ext4, (*baddisk.Disk).Fill, (*baddisk.Disk).Empty, []syscall.Errno{syscall.ENOSPC}},
		{"XFS is full", baddisk.XFS, (*baddisk.Disk).Fill, (*baddisk.Disk).Empty, []syscall.Errno{syscall.ENOSPC}},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := baddisk.New(t, c.kind)
			path := filepath.Join(disk.Dir, ".try")
			if err := Try(path); err != nil {
				t.Fatal(err)
			}

			c.harm(disk)
			var st syscall.Statfs_t
			if err := syscall.Statfs(disk.Dir, &st); err != nil {
				t.Errorf("statfs shows it, too: %v", err)
			}

			err := Try(path)
			found := false
			for _, errno := range c.want {
				found = found || errors.Is(err, errno)
			}

			if !found {
				t.Errorf("got %v, want one of %v", err, c.want)
			}

			c.mend(disk)
			if err := Try(path); err != nil {
				t.Errorf("when it is mended: %v", err)
			}
		})
	}
}
