package userdata

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// labels of a disk with answers, as cloud-init has them (NoCloud).
var labels = []string{"cidata", "CIDATA"}

// files on such a disk: our own first, then the one shared with cloud-init.
var seedFiles = []string{"saltern.yaml", "user-data"}

// noCloud looks into seed directories, then on a disk with the label cidata,
// which is mounted for a moment, read-only.
func (p Places) noCloud(ctx context.Context) ([]byte, error) {
	for _, dir := range p.Seeds {
		if text, err := readSeed(dir, seedFiles); text != nil || err != nil {
			return text, err
		}
	}
	if p.Devices == "" {
		return nil, nil
	}
	return fromDisk(ctx, p.Devices, labels, seedFiles)
}

func readSeed(dir string, names []string) ([]byte, error) {
	for _, n := range names {
		text, err := readFile(filepath.Join(dir, n))
		if err != nil {
			return nil, err
		}
		if text != nil {
			return text, nil
		}
	}
	return nil, nil
}

// fromDisk reads the first of the files from the first disk with one of the
// labels.
func fromDisk(_ context.Context, devices string, labels, names []string) ([]byte, error) {
	for _, l := range labels {
		dev := filepath.Join(devices, l)
		if _, err := os.Stat(dev); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		return fromDevice(dev, names)
	}
	return nil, nil
}

func fromDevice(dev string, names []string) (text []byte, err error) {
	dir, err := os.MkdirTemp("", "saltern-seed-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	var last error
	for _, kind := range []string{"iso9660", "vfat", "ext4"} {
		if last = unix.Mount(dev, dir, kind, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); last == nil {
			break
		}
	}
	if last != nil {
		return nil, fmt.Errorf("%s cannot be mounted: %w", dev, last)
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)) }()
	return readSeed(dir, names)
}
