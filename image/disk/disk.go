// Package disk creates a bootable disk from a root file system: a GPT that boots with BIOS and
// UEFI, two partitions for versions of the system, and a partition for the state of the node.
//
//	bios     1 MiB    GRUB for the BIOS
//	esp      160 MiB  GRUB for UEFI, its configuration and environment, and
//	                  kernel and initial RAM disk of each version: /a, /b
//	root-a   512 MiB  squashfs
//	root-b   512 MiB  empty until the first upgrade
//	data     the rest ext4, grown to the disk's end at boot
//
// It runs grub-mkimage, mkfs.vfat, mtools and mke2fs, which need no root rights here, and mounts
// nothing. The same input gives the same bytes.
package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"saltern/image/grubenv"
)

// mib is a mebibyte.
const mib = 1 << 20

// Sizes of partitions in MiB. The data partition grows later.
const (
	biosSize = 1
	espSize  = 160
	rootSize = 512
	dataSize = 96
)

// Options describes the disk to build.
type Options struct {
	Out          string // path of the raw disk, which is replaced
	Root         string // path of the squashfs
	Kernel       string
	Initrd       string
	Size         int64  // size of the disk in bytes; 0 means the smallest possible
	KernelOption string // kernel options in addition to [Append]
	Version      string // shown by `applianced upgrade status`
	Epoch        time.Time
}

type builder struct {
	Options
	work string
}

// layout returns the partitions of a disk.
func layout() (parts []Partition) {
	at := uint64(mib / Sector)
	for _, p := range []struct {
		name string
		kind GUID
		mib  uint64
	}{
		{"bios", typeBIOS, biosSize},
		{"esp", typeESP, espSize},
		{"root-a", typeRoot, rootSize},
		{"root-b", typeRoot, rootSize},
		{"data", typeVar, dataSize},
	} {
		n := p.mib * mib / Sector
		parts = append(parts, Partition{
			Name:  p.name,
			Type:  p.kind,
			ID:    nameGUID(p.name),
			First: at,
			Count: n,
		})

		at += n
	}

	return parts
}

// smallest returns the size of the smallest disk for the layout.
func smallest() int64 {
	parts := layout()
	last := parts[len(parts)-1]
	return int64(last.First+last.Count)*Sector + mib
}

// Build creates the disk.
func Build(ctx context.Context, o Options) (err error) {
	if o.Size == 0 {
		o.Size = smallest()
	}

	if o.Size < smallest() || o.Size%mib != 0 {
		return fmt.Errorf("disk: size %d is not a number of MiB from %d on", o.Size, smallest()/mib)
	}

	work, err := os.MkdirTemp(filepath.Dir(o.Out), ".disk-")
	if err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	defer os.RemoveAll(work)

	b := &builder{o, work}
	part := o.Out + ".part"
	f, err := os.Create(part)
	if err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	defer os.Remove(part) // after the rename it no longer exists

	if err = errors.Join(b.fillDisk(ctx, f), f.Close()); err == nil {
		err = os.Rename(part, o.Out)
	}

	if err != nil {
		return fmt.Errorf("disk: %w", err)
	}

	return nil
}

func (b *builder) fillDisk(ctx context.Context, f *os.File) error {
	if err := f.Truncate(b.Size); err != nil {
		return err
	}

	parts := layout()
	if err := writeGPT(f, uint64(b.Size)/Sector, nameGUID("disk"), parts); err != nil {
		return err
	}

	core, efi, err := b.makeGrub(ctx)
	if err != nil {
		return err
	}

	loader, err := os.ReadFile(core)
	if err != nil {
		return err
	}

	if err := placeBIOS(f, parts[0].First, parts[0].Count, loader); err != nil {
		return err
	}

	esp, err := b.makeESP(ctx, efi, parts)
	if err != nil {
		return err
	}

	data, err := b.makeData(ctx)
	if err != nil {
		return err
	}

	return errors.Join(copyInto(f, parts[1], esp), copyInto(f, parts[2], b.Root), copyInto(f, parts[4], data))
}

func (b *builder) runCommand(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	epoch := fmt.Sprint(b.Epoch.Unix())
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+
		epoch, "E2FSPROGS_FAKE_TIME="+epoch, "MTOOLS_SKIP_CHECK=1", "TZ=UTC", "LC_ALL=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// makeESP creates an image of the EFI system partition and returns its path.
func (b *builder) makeESP(ctx context.Context, efi string, parts []Partition) (string, error) {
	img := filepath.Join(b.work, "esp")
	if err := sparse(img, espSize*mib); err != nil {
		return "", err
	}

	if err := b.runCommand(ctx, "mkfs.vfat", "--invariant", "-F", "32", "-n", "ESP", "-i", espID, img); err != nil {
		return "", err
	}

	env, err := grubenv.Env{"slot": "a"}.Bytes()
	if err != nil {
		return "", err
	}

	cfg := filepath.Join(b.work, "grub.cfg")
	envFile := filepath.Join(b.work, "grubenv")
	nsh := filepath.Join(b.work, "startup.nsh")
	kernel := filepath.Join(b.work, "vmlinuz")
	initrd := filepath.Join(b.work, "initrd")
	version := filepath.Join(b.work, "version")
	err = errors.Join(
		os.WriteFile(cfg, []byte(config(parts[2].ID, parts[3].ID, b.KernelOption)), 0o644),
		os.WriteFile(envFile, env, 0o644),
		// A firmware that has lost its boot entries starts its shell, which runs this script.
		os.WriteFile(nsh, []byte("\\EFI\\BOOT\\BOOTX64.EFI\r\n"), 0o644),
		os.WriteFile(version, []byte(b.Version+"\n"), 0o644),
		copyTo(b.Kernel, kernel), copyTo(b.Initrd, initrd),
	)
	if err != nil {
		return "", err
	}

	for _, d := range []string{"EFI", "EFI/BOOT", "grub", "a", "b"} {
		if err := b.runCommand(ctx, "mmd", "-i", img, "::"+d); err != nil {
			return "", err
		}
	}

	for _, f := range [][2]string{
		{efi, "EFI/BOOT/BOOTX64.EFI"},
		{nsh, "startup.nsh"},
		{cfg, "grub/grub.cfg"},
		{envFile, "grub/grubenv"},
		{kernel, "a/vmlinuz"},
		{initrd, "a/initrd"},
		{version, "a/version"},
	} {
		if err := os.Chtimes(f[0], b.Epoch, b.Epoch); err != nil {
			return "", err
		}
		if err := b.runCommand(ctx, "mcopy", "-m", "-i", img, f[0], "::"+f[1]); err != nil {
			return "", err
		}
	}

	return img, nil
}

// makeData creates an image of the empty file system for the node's state, and returns its path.
func (b *builder) makeData(ctx context.Context) (string, error) {
	img := filepath.Join(b.work, "data")
	if err := sparse(img, dataSize*mib); err != nil {
		return "", err
	}
	id := nameGUID("datafs").String()
	// Enough inodes and descriptors to grow to 1 TiB while mounted.
	return img, b.runCommand(ctx, "mke2fs", "-q", "-t", "ext4", "-L", "data", "-U", id, "-i", "16384", "-m", "1",
		"-E", "hash_seed="+id+",root_owner=0:0", img)
}

// copyInto copies a file into a partition. It skips blocks of zeroes, so that the disk has holes
// there.
func copyInto(disk *os.File, p Partition, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()

	fi, err := in.Stat()
	if err != nil {
		return err
	}
	if fi.Size() > int64(p.Count*Sector) {
		return fmt.Errorf("%s has %d MiB, partition %s %d MiB", path, fi.Size()/mib, p.Name, p.Count*Sector/mib)
	}

	buf, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(p.First * Sector); ; {
		n, err := io.ReadFull(in, buf)
		if n > 0 && !bytes.Equal(buf[:n], zero[:n]) {
			if _, err := disk.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}

		at += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func sparse(path string, size int64) error {
	return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size))
}

func copyTo(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}
