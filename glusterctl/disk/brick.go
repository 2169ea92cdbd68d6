// Package disk finds an empty disk for a brick, creates a file system on the disk, and prepares
// brick directories. It destroys no data: a disk is treated as empty only if its first and last
// mebibyte are zero and it is not in use.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// marks are the extended attributes that glusterd leaves on the root of a
// brick (glusterd-utils.c, glusterd_check_and_set_brick_xattr).
var marks = [...]string{"trusted.glusterfs.volume-id", "trusted.gfid", "trusted.glusterfs.dht",
	"trusted.glusterfs.mdata"}

// FreshBrick returns the name of a directory under root that has never been a brick: root/volume-1,
// -2 and so on. The name is not in others, and no existing file has a name that continues it with a
// dot. FreshBrick creates nothing. root must pass [CheckRoot].
func FreshBrick(root, volume string, others ...string) (string, error) {
	if err := CheckRoot(root); err != nil {
		return "", err
	}

	for n := 1; n < 10_000; n++ {
		p := filepath.Join(root, fmt.Sprintf("%s-%d", volume, n))
		if longer, _ := filepath.Glob(p + ".*"); len(longer) > 0 || slices.Contains(others, p) {
			continue
		}

		_, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			return p, nil
		}
		if err != nil {
			return "", fmt.Errorf("find a brick directory: %w", err)
		}
	}

	return "", fmt.Errorf("find a brick directory: %s is full of old ones", root)
}

// errRootDisk is wrapped by the error if a brick would be on the root file system. glusterd refuses
// that, and this program never forces it.
var errRootDisk = errors.New("it is on the root file system")

// CheckRoot returns nil if bricks may be placed below dir. If dir does not exist yet, it checks the
// nearest existing directory above.
func CheckRoot(dir string) error {
	var d, r unix.Stat_t
	err := unix.Stat(dir, &d)
	for at := dir; errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at); {
		at = filepath.Dir(at)
		err = unix.Stat(at, &d)
	}

	if err != nil {
		return fmt.Errorf("brick directory %s: %w", dir, err)
	}
	if d.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("brick directory %s: it is not a directory", dir)
	}

	if err := unix.Stat("/", &r); err != nil {
		return fmt.Errorf("brick directory %s: %w", dir, err)
	}
	if d.Dev == r.Dev {
		return fmt.Errorf("brick directory %s: %w", dir, errRootDisk)
	}

	return nil
}

// errNotEmpty is wrapped by the error if data would be lost.
var errNotEmpty = errors.New("it is not empty")

// ClearBrick removes glusterd's marks from a directory that contains nothing else. The caller must
// ensure that no volume lists the directory.
func ClearBrick(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("clear brick %s: %w", dir, err)
	}

	for _, e := range entries {
		if e.Name() != ".glusterfs" || !e.IsDir() {
			return fmt.Errorf("clear brick %s: %w", dir, errNotEmpty)
		}
	}

	if len(entries) == 1 {
		if err := os.RemoveAll(filepath.Join(dir, ".glusterfs")); err != nil {
			return fmt.Errorf("clear brick %s: %w", dir, err)
		}
	}

	for _, m := range marks {
		if err := unix.Lremovexattr(dir, m); err != nil && !errors.Is(err, unix.ENODATA) &&
			!errors.Is(err, unix.ENOTSUP) {
			return fmt.Errorf("clear brick %s: %s: %w", dir, m, err)
		}
	}

	return nil
}
