// Package datadisk prepares and mounts the disk for a node's copy of the shared volume. The set-up
// creates the disk's file system once, and each start mounts it. A process without the rights for
// that asks systemd.
package datadisk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"saltern/glusterctl/disk"
	"saltern/internal/command"
	"saltern/internal/durable"
	"saltern/internal/pause"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
)

// bricksLabel labels the file system for this node's copy of the volume.
const bricksLabel = "sca-bricks"

var (
	byLabel = filepath.Join("/dev/disk/by-label", bricksLabel)
	byUUID  = "/dev/disk/by-uuid"
)

// diskMark is a file in the data directory of a node with a data disk. It names the device, and the
// UUID of its file system, which distinguishes the disk from another node's disk with the same
// label. If the file does not exist, a disk with our label belongs to an earlier node: the machine
// was reset.
const diskMark = "data-disk"

// plainUUID matches blkid's output for a file system of ours, which is also a name in byUUID.
var plainUUID = regexp.MustCompile(`^[0-9A-Fa-f-]{8,36}$`)

// markDisk writes diskMark for the device dev.
func markDisk(ctx context.Context, cfg *settings.Settings, dev string) error {
	text := dev + "\n"
	out, err := command.Do(ctx, privileged(), "blkid", "-o", "value", "-s", "UUID", dev)
	if uuid := strings.TrimSpace(string(out)); err == nil && plainUUID.MatchString(uuid) {
		text += uuid + "\n"
	}
	_, err = layout.WriteFile(filepath.Join(cfg.DataDir, diskMark), []byte(text), 0o600)
	return err
}

// device returns the data disk of this node, found by its recorded UUID or else by its label. If
// the node has no data disk, or the disk is missing, the error is fs.ErrNotExist.
func device(cfg *settings.Settings) (string, error) {
	text, err := durable.Read(filepath.Join(cfg.DataDir, diskMark), maxMark)
	if err != nil {
		return "", err
	}
	path := byLabel
	if _, uuid, ok := strings.Cut(strings.TrimSpace(string(text)), "\n"); ok && plainUUID.MatchString(uuid) {
		path = filepath.Join(byUUID, uuid)
	}
	return filepath.EvalSymlinks(path)
}

const maxMark = 4 << 10

// Prepare creates a file system on a data disk and mounts it at the directory for the copy of the
// volume. It does not format a disk that this set-up has prepared before. If the disk has other
// content, Prepare returns an error unless erase is set.
func Prepare(ctx context.Context, cfg *settings.Settings, dev string, erase bool) error {
	mark := filepath.Join(cfg.DataDir, diskMark)
	_, err := os.Stat(mark)
	ours := err == nil
	if to, err := filepath.EvalSymlinks(byLabel); err != nil || to != dev || erase && !ours {
		all, err := (disk.Finder{}).Find()
		if err != nil {
			return err
		}

		var found *disk.Disk
		for i := range all {
			if all[i].Path == dev {
				found = &all[i]
			}
		}

		if found == nil {
			return fmt.Errorf("there is no disk %s", dev)
		}

		if err := (disk.Finder{}).Format(ctx, privileged(), *found, bricksLabel, erase); err != nil {
			return err
		}
	}

	if err := markDisk(ctx, cfg, dev); err != nil {
		return err
	}

	return mountBricks(ctx, cfg, dev)
}

// mountBricks mounts the data disk unless something is mounted there.
func mountBricks(ctx context.Context, cfg *settings.Settings, dev string) error {
	if err := os.MkdirAll(cfg.Storage.Bricks, 0o755); err != nil {
		return err
	}
	if there, err := mounted(cfg.Storage.Bricks); err != nil || there {
		return err
	}
	if confined() {
		return mountUnit(ctx, dev, cfg.Storage.Bricks)
	}
	if err := unix.Mount(dev, cfg.Storage.Bricks, "xfs", unix.MS_NOATIME|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", dev, cfg.Storage.Bricks, err)
	}
	return nil
}

// mounted reports whether something is mounted on a directory.
func mounted(dir string) (bool, error) {
	var at, above unix.Stat_t
	if err := errors.Join(unix.Stat(dir, &at), unix.Stat(filepath.Dir(dir), &above)); err != nil {
		return false, err
	}
	return at.Dev != above.Dev, nil
}

// Mount mounts the data disk that the set-up has prepared. Each start of the node calls it. If the
// node has no data disk, it does nothing.
func Mount(ctx context.Context, cfg *settings.Settings) error {
	if !cfg.OnVolume() {
		return nil
	}
	dev, err := device(cfg)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return mountBricks(ctx, cfg, dev)
}

// Release unmounts the data disk that [Mount] has mounted. The disk's content stays. Release may be
// repeated.
func Release(ctx context.Context, cfg *settings.Settings) error {
	if _, err := os.Stat(filepath.Join(cfg.DataDir, diskMark)); err != nil || !cfg.OnVolume() {
		return nil
	}

	if there, err := mounted(cfg.Storage.Bricks); errors.Is(err, fs.ErrNotExist) || err == nil && !there {
		return nil
	} else if err != nil {
		return err
	}

	if confined() {
		return unmountUnit(ctx, cfg.Storage.Bricks)
	}

	var err error
	for range 50 { // retry until the processes that served the copy have ended
		if err = unix.Unmount(cfg.Storage.Bricks, 0); !errors.Is(err, unix.EBUSY) {
			break
		}
		if err := pause.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}

	if err != nil {
		return fmt.Errorf("unmount %s: %w", cfg.Storage.Bricks, err)
	}

	return nil
}
