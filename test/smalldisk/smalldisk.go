// Package smalldisk mounts small file systems, for tests of what happens when one is full.
package smalldisk

import (
	"fmt"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount mounts a file system of so many MiB and files until the test ends. Without root the
// test is skipped.
func Mount(t testing.TB, mib, files int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	MountOn(t, dir, fmt.Sprintf("size=%dm,nr_inodes=%d", mib, files))
	return dir
}

// MountOn is Mount on a folder that is there, with options of tmpfs(5).
func MountOn(t testing.TB, dir, options string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("LOUD: a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// Free returns how many bytes and files the file system of a folder has left.
func Free(t testing.TB, dir string) (bytes, files int64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Ffree)
}
