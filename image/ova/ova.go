// Package ova packs a disk for VMware and VirtualBox: a tar archive of an OVF
// descriptor, a manifest of digests, and a compressed disk.
package ova

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"saltern/image/internal/tarball"
)

// Options describes the archive to build.
type Options struct {
	Out       string
	Raw       string // path of the raw disk
	Name      string
	Version   string
	CPUs      int
	MemoryMiB int
	Epoch     time.Time
}

// dataSize is the capacity in bytes of the empty disk for the shared volume. The disk takes no
// space in the archive.
const dataSize = 20 << 30

// Build creates the archive. qemu-img compresses the disk.
func Build(ctx context.Context, o Options) error {
	fi, err := os.Stat(o.Raw)
	if err != nil {
		return fmt.Errorf("ova: %w", err)
	}

	work, err := os.MkdirTemp(filepath.Dir(o.Out), ".ova-")
	if err != nil {
		return fmt.Errorf("ova: %w", err)
	}
	defer os.RemoveAll(work)

	vmdk := filepath.Join(work, "disk")
	cmd := exec.CommandContext(ctx, "qemu-img", "convert", "-f", "raw", "-O", "vmdk", "-o",
		"subformat=streamOptimized,adapter_type=lsilogic,hwversion=14", o.Raw, vmdk)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ova: qemu-img: %w: %s", err, bytes.TrimSpace(out))
	}

	if err := fixID(vmdk); err != nil {
		return err
	}

	disk, err := os.Open(vmdk)
	if err != nil {
		return fmt.Errorf("ova: %w", err)
	}
	defer disk.Close()

	h := sha256.New()
	size, err := io.Copy(h, disk)
	if err != nil {
		return fmt.Errorf("ova: %w", err)
	}

	populated, err := populatedSize(o.Raw)
	if err != nil {
		return err
	}

	m := machine{
		Name:       o.Name,
		Version:    o.Version,
		Release:    releaseOf(o.Version),
		Disk:       o.Name + "-disk1.vmdk",
		DiskSize:   size,
		Capacity:   fi.Size(),
		Populated:  populated,
		CPUs:       o.CPUs,
		MemoryMiB:  o.MemoryMiB,
		Categories: categories,
		Class:      class,
		DataSize:   dataSize,
	}

	ovf, err := m.descriptor()
	if err != nil {
		return err
	}

	sum := sha256.Sum256(ovf)
	manifest := fmt.Sprintf("SHA256(%s.ovf)= %x\nSHA256(%s)= %x\n", o.Name, sum, m.Disk, h.Sum(nil))
	if _, err := disk.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("ova: %w", err)
	}

	// The descriptor is first, as DSP0243 demands, then manifest and disk.
	err = tarball.Write(o.Out, []tarball.Member{
		{Name: o.Name + ".ovf", Size: int64(len(ovf)), Reader: bytes.NewReader(ovf)},
		{Name: o.Name + ".mf", Size: int64(len(manifest)), Reader: strings.NewReader(manifest)},
		{Name: m.Disk, Size: size, Reader: disk},
	}, o.Epoch)
	if err != nil {
		return fmt.Errorf("ova: %w", err)
	}
	return nil
}

// grain is the allocation unit of a stream-optimized disk, in bytes.
const grain = 64 << 10

// populatedSize returns the number of bytes of a disk in grains that are not all zero. The disk
// takes that many bytes on a datastore with thin disks. The number does not depend on holes of the
// file, so two builds give the same number.
func populatedSize(path string) (total int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("ova: %w", err)
	}
	defer f.Close()

	var at int64
	block, zero := make([]byte, grain), make([]byte, grain)
	for {
		// Skip holes, which are most of a disk.
		next, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return total, nil // only a hole follows, which has no data
		}
		if err != nil {
			return 0, fmt.Errorf("ova: look for data of %s: %w", path, err)
		}

		at = max(at, next-next%grain)

		n, err := f.ReadAt(block, at)
		if n > 0 && !bytes.Equal(block[:n], zero[:n]) {
			total += grain
		}

		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return 0, fmt.Errorf("ova: %w", err)
		}

		at += grain
	}
}

// contentID matches the line with the content number, which qemu-img writes without leading zeros,
// and everything up to the zero bytes.
var contentID = regexp.MustCompile(`(?s)\nCID=[0-9a-f]{1,8}\n[^\x00]*\x00+`)

// fixID replaces the random content number in a VMDK's descriptor, so that two builds give the same
// bytes. The descriptor is text near the start of the file, followed by zero bytes.
func fixID(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("ova: %w", err)
	}
	defer f.Close()

	head := make([]byte, 64<<10)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("ova: %w", err)
	}

	at := contentID.FindIndex(head[:n])
	if at == nil {
		return errors.New("ova: the compressed disk has no content number")
	}

	old := head[at[0]:at[1]]
	_, rest, _ := bytes.Cut(bytes.TrimRight(old[1:], "\x00"), []byte("\n"))
	fixed := append([]byte("\nCID=5a17e2d0\n"), rest...)
	if len(fixed) > len(old) {
		return errors.New("ova: the compressed disk's descriptor has no room for a content number")
	}

	fixed = append(fixed, make([]byte, len(old)-len(fixed))...)
	if _, err := f.WriteAt(fixed, int64(at[0])); err != nil {
		return fmt.Errorf("ova: %w", err)
	}

	return f.Sync()
}
