package upgrade

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// onOneDisk returns an error if the boot partition, the two slots and the node's data are not on
// one disk. Disks made from the same image have the same labels and identifiers. So if the disk of
// another Saltern machine is attached, for example for a rescue, a label may lead to the wrong
// disk. onOneDisk skips a path that is not a partition.
func (s *System) onOneDisk(slots ...string) error {
	parts := map[string]uint64{}
	for part, path := range map[string]string{
		"the system that runs": "/",
		"the boot partition":   filepath.Dir(s.env()),
		"the partition data":   or(s.Data, "/var/lib/saltern"),
	} {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("upgrade: look where %s is: %w", part, err)
		}

		parts[part] = st.Dev
	}

	for _, slot := range slots {
		var st unix.Stat_t
		if err := unix.Stat(s.device(slot), &st); err != nil {
			return fmt.Errorf("upgrade: look where the partition root-%s is: %w", slot, err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFBLK {
			parts["the partition root-"+slot] = st.Rdev
		}
	}

	return sameDisk(or(s.Sysfs, "/sys"), parts)
}

// ErrOtherDisk means that a label leads to the disk of another machine.
var ErrOtherDisk = errors.New("upgrade: a disk of another Saltern machine is attached to this one; nothing was written: detach it, restart, and try again")

// sameDisk returns an error unless all partitions are on one disk. parts holds their device numbers
// by name.
func sameDisk(sysfs string, parts map[string]uint64) error {
	disk, first := "", ""
	for part, number := range parts {
		of := diskOf(sysfs, number)
		switch {
		case of == "":
		case disk == "":
			disk, first = of, part
		case of != disk:
			return fmt.Errorf("%w (%s is on %s, %s on %s)", ErrOtherDisk, first, filepath.Base(disk), part,
				filepath.Base(of))
		}
	}
	return nil
}

// diskOf returns the sysfs directory of the disk that the device is a partition of, or "" if the
// device is not a partition.
func diskOf(sysfs string, number uint64) string {
	link := filepath.Join(sysfs, "dev", "block", fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number)))
	dir, err := filepath.EvalSymlinks(link)
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err != nil {
		return ""
	}
	return filepath.Dir(dir)
}
