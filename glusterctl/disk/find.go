package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/command"
	"saltern/internal/mountinfo"

	"golang.org/x/sys/unix"
)

// Disk is one whole disk of this machine.
type Disk struct {
	Name  string `json:"name"` // name in /sys/block, such as sdb or nvme1n1
	Path  string `json:"path"` // path of the device, such as /dev/sdb
	Size  uint64 `json:"size"` // size in bytes
	Model string `json:"model,omitempty"`
	// Used says why the disk is not free, or "" when it is empty.
	Used string `json:"used,omitempty"`
}

// minSize is the smallest disk that is offered for bricks.
const minSize = 1 << 30

// edge is how many bytes at each end of a disk must be zero: partition tables, LVM, MD (all
// versions), ZFS, Btrfs and file systems have their marks there.
const edge = 1 << 20

// Finder finds disks. The zero value searches this machine.
type Finder struct {
	Sys  fs.FS                                        // nil means /sys
	Open func(name string) (io.ReadSeekCloser, error) // nil means /dev/NAME, exclusively
	// Mounts is the content of mountinfo. nil means /proc/self/mountinfo.
	Mounts []byte
}

// ignored lists the kinds of block devices that are never data disks.
var ignored = []string{"loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd", "mtd"}

// Find returns all disks. If a disk is in use, its field Used is the reason.
func (f Finder) Find() ([]Disk, error) {
	sys := f.Sys
	if sys == nil {
		sys = os.DirFS("/sys")
	}

	mounts := f.Mounts
	if mounts == nil {
		var err error
		if mounts, err = os.ReadFile(mountinfo.Self); err != nil {
			return nil, fmt.Errorf("find disks: %w", err)
		}
	}

	entries, err := fs.ReadDir(sys, "block")
	if err != nil {
		return nil, fmt.Errorf("find disks: %w", err)
	}

	var out []Disk
	for _, e := range entries {
		name := e.Name()
		if slices.ContainsFunc(ignored, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}

		d := Disk{Name: name, Path: "/dev/" + name, Model: readAttr(sys, name, "device/model")}
		sectors, err := strconv.ParseUint(readAttr(sys, name, "size"), 10, 54)
		if err != nil || sectors == 0 {
			continue
		}

		d.Size = sectors * 512 // always in 512-byte units
		d.Used = f.usedBy(sys, d, mounts)
		out = append(out, d)
	}

	return out, nil
}

func readAttr(sys fs.FS, name, file string) string {
	b, err := fs.ReadFile(sys, path.Join("block", name, file))
	if err != nil {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return -1
		}
		return r
	}, strings.TrimSpace(string(b)))
}

func (f Finder) usedBy(sys fs.FS, d Disk, mounts []byte) string {
	switch {
	case d.Size < minSize:
		return fmt.Sprintf("smaller than %d MiB", minSize>>20)
	case readAttr(sys, d.Name, "ro") == "1":
		return "read-only"
	case readAttr(sys, d.Name, "removable") == "1":
		return "removable"
	}

	if held, err := fs.ReadDir(sys, path.Join("block", d.Name, "holders")); err == nil && len(held) > 0 {
		return "in use by " + held[0].Name()
	}

	kids, err := fs.ReadDir(sys, path.Join("block", d.Name))
	if err != nil {
		return err.Error()
	}

	for _, k := range kids {
		if strings.HasPrefix(k.Name(), d.Name) {
			return "has partitions"
		}
	}

	if dev := readAttr(sys, d.Name, "dev"); dev != "" {
		for m := range mountinfo.Parse(string(mounts)) {
			if m.Device == dev {
				return "mounted at " + m.Point
			}
		}
	}

	if err := f.checkEmpty(d); err != nil {
		return err.Error()
	}

	return ""
}

// checkEmpty reads both ends of a disk. It returns an error unless they are zero.
func (f Finder) checkEmpty(d Disk) error {
	open := f.Open
	if open == nil {
		// O_EXCL on a block device fails while the kernel uses it.
		open = func(name string) (io.ReadSeekCloser, error) {
			return os.OpenFile("/dev/"+name, os.O_RDONLY|unix.O_EXCL, 0)
		}
	}

	r, err := open(d.Name)
	if err != nil {
		return fmt.Errorf("cannot be opened: %w", err)
	}
	defer r.Close()

	buf := make([]byte, edge)
	for _, at := range []int64{0, int64(d.Size) - edge} {
		if _, err := r.Seek(at, io.SeekStart); err != nil {
			return fmt.Errorf("cannot be read: %w", err)
		}

		if _, err := io.ReadFull(r, buf); err != nil {
			return fmt.Errorf("cannot be read: %w", err)
		}
		if slices.ContainsFunc(buf, func(b byte) bool { return b != 0 }) {
			return errors.New("not empty")
		}
	}

	return nil
}

// Format creates an xfs for bricks on an empty disk. Immediately before, it checks that the disk is
// still empty. If wipe is set, which only an administrator may request, Format overwrites any
// content. label has at most 12 characters.
func (f Finder) Format(ctx context.Context, r command.Runner, d Disk, label string, wipe bool) error {
	if !wipe {
		all, err := f.Find()
		if err != nil {
			return err
		}

		i := slices.IndexFunc(all, func(x Disk) bool { return x.Name == d.Name })
		if i < 0 {
			return fmt.Errorf("format %s: it is gone", d.Path)
		}
		if all[i].Used != "" {
			return fmt.Errorf("format %s: %s: %w", d.Path, all[i].Used, errNotEmpty)
		}
	}

	argv := []string{"mkfs.xfs", "-q", "-i", "size=512", "-L", label}
	if wipe {
		argv = append(argv, "-f")
	}

	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if _, err := command.Do(ctx, r, append(argv, d.Path)...); err != nil {
		return fmt.Errorf("format %s: %w", d.Path, err)
	}

	return nil
}
