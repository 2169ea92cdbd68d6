package disk

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Squashfs packs a tree into a read-only file system. level is the compression level of zstd: level
// 15 saves 7 % but takes nine times as long as level 9. Squashfs omits the kernel and the initial
// RAM disk, which are on the boot partition.
func Squashfs(ctx context.Context, tree, out string, level int, epoch time.Time) error {
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("squashfs: %w", err)
	}
	b := &builder{Options: Options{Epoch: epoch}}
	t := fmt.Sprint(epoch.Unix())
	// mksquashfs refuses SOURCE_DATE_EPOCH in the environment if its options also set a time.
	err := b.runCommand(ctx, "env", "-u", "SOURCE_DATE_EPOCH", "mksquashfs", tree, out,
		"-noappend", "-no-progress", "-quiet", "-comp", "zstd", "-Xcompression-level", fmt.Sprint(level),
		"-b", "256K", "-all-time", t, "-mkfs-time", t, "-wildcards", "-e", "boot/vmlinuz-*", "boot/initrd.img-*")
	if err != nil {
		return fmt.Errorf("squashfs: %w", err)
	}
	return nil
}
