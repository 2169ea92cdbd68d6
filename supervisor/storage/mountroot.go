package storage

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mountRoot is the mount point of a volume. Only one goroutine may use it.
type mountRoot struct {
	path  string
	known mountMark // mark of the volume that was found there; zero: none yet
}

// mountMark identifies a mount: another mount has another mark, and so has the directory under the
// mount point.
type mountMark struct {
	id           uint64
	major, minor uint32
}

// requireVolume returns an error unless the directory is the root of a mounted volume: writes to
// any other directory would go to the local disk. While the mount has not changed, requireVolume
// asks only the kernel, because statfs(2) asks all bricks.
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
		m.known = mark // the mark from before statfs(2): if a mount has changed since, the next call checks again
	}

	return nil
}

// markOf returns the mark of the mount at path. It asks only the kernel (statx(2)).
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

// requireVolume checks path once as mountRoot.requireVolume does.
func requireVolume(path string) error {
	m := mountRoot{path: path}
	return m.requireVolume()
}
