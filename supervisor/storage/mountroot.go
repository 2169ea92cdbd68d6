package storage

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mountRoot is a directory where a volume is mounted. It is for one goroutine.
type mountRoot struct {
	path  string
	known mountMark // of the volume found there; zero: none yet
}

// mountMark tells one mount from another, and from the directory below it.
type mountMark struct {
	id           uint64
	major, minor uint32
}

// requireVolume fails for a directory that is not the root of a mounted volume: writes
// there would land on the local disk. While the mount stays the same it only asks the
// kernel, because statfs(2) asks all bricks.
func (m *mountRoot) requireVolume() error {
	mark, err := markOf(m.path)
	if err == nil && mark == m.known && mark.id != 0 {
		return nil
	}

	m.known = mountMark{}
	var st unix.Statfs_t
	if err := retryIntr(func() error { return unix.Statfs(m.path, &st) }); err != nil {
		return fmt.Errorf("look at %s: %w", m.path, err)
	}
	if st.Type != unix.FUSE_SUPER_MAGIC {
		return fmt.Errorf("no volume is mounted at %s", m.path)
	}

	if err == nil {
		m.known = mark // read before statfs(2): a mount that came between is checked again
	}

	return nil
}

// markOf returns the mark of the mount at path. It asks the kernel only (statx(2)).
func markOf(path string) (mountMark, error) {
	var st unix.Statx_t
	err := retryIntr(func() error {
		return unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st)
	})
	if err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return mountMark{}, err
	}
	return mountMark{st.Mnt_id, st.Dev_major, st.Dev_minor}, nil
}

// requireVolume is mountRoot.requireVolume for a single check.
func requireVolume(path string) error {
	m := mountRoot{path: path}
	return m.requireVolume()
}
