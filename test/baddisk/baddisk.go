// Package baddisk mounts real file systems that a test can break as disks break, and
// mend again.
package baddisk

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"saltern/test/await"
)

// The file systems.
const (
	Ext4 = "ext4"
	XFS  = "xfs"
)

// Requests to a file system: linux/fs.h, and xfs_fs.h for the last.
const (
	freeze    = 0xc0045877 // FIFREEZE
	thaw      = 0xc0045878 // FITHAW
	goingDown = 0x8004587d // XFS_IOC_GOINGDOWN
)

// smallest is what mkfs.xfs wants at least, in bytes.
const smallest = 320 << 20

// refill is the pause between two looks of Fill for room that others gave back.
const refill = 10 * time.Millisecond

// Disk is a file system on a file, mounted until the test ends.
type Disk struct {
	Dir   string
	t     testing.TB
	kind  string
	image string
	size  int64

	endFill func() // stops what Fill began, and waits for it
}

// New mounts a small file system of that kind. Without root, loop devices or its mkfs the
// test is skipped.
func New(t testing.TB, kind string) *Disk {
	t.Helper()
	return On(t, filepath.Join(t.TempDir(), "mounted"), kind, smallest)
}

// On is New for a file system of so many bytes, none of which it takes before they are
// written, on a folder that it makes.
func On(t testing.TB, dir, kind string, size int64) *Disk {
	t.Helper()
	d := &Disk{
		Dir:   dir,
		t:     t,
		kind:  kind,
		image: filepath.Join(t.TempDir(), "image"),
		size:  size,
	}

	if err := errors.Join(os.Mkdir(d.Dir, 0o755), os.WriteFile(d.image, nil, 0o600),
		os.Truncate(d.image, size)); err != nil {
		t.Fatal(err)
	}

	if out, err := exec.Command("mkfs."+kind, "-q", d.image).CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: mkfs.%s: %v %s", kind, err, out)
	}

	if err := d.mount(); err != nil {
		t.Skipf("NOT TESTED: a disk cannot be made of a file here: %v", err)
	}

	t.Cleanup(d.unmount)
	return d
}

func (d *Disk) mount() error {
	options := "loop"
	if d.kind == Ext4 {
		options += ",errors=remount-ro"
	}
	out, err := exec.Command("mount", "-o", options, "-t", d.kind, d.image, d.Dir).CombinedOutput()
	if err != nil {
		return errors.New(strings.TrimSpace(string(out)))
	}
	return nil
}

func (d *Disk) unmount() {
	_ = d.ioctl(thaw, 0) // most are not frozen
	if err := syscall.Unmount(d.Dir, syscall.MNT_DETACH); err != nil {
		d.t.Errorf("unmount %s: %v", d.Dir, err)
	}
}

// Repair unmounts the file system and mounts it again, as a restart of the machine does.
// It mounts a copy of it: mount namespaces that others have made meanwhile hold the broken
// one, and the kernel would go on with that.
func (d *Disk) Repair() {
	d.t.Helper()
	broken := d.image
	d.image += "-mended"
	err := syscall.Unmount(d.Dir, syscall.MNT_DETACH)
	if err == nil {
		err = exec.Command("cp", "--sparse=always", broken, d.image).Run()
	}
	if err == nil {
		err = d.mount()
	}
	if err != nil {
		d.t.Fatalf("mount %s again: %v", d.Dir, err)
	}
}

// ReadOnly mounts the file system read-only from now on. It waits until nothing on it is
// open for writing.
func (d *Disk) ReadOnly() {
	d.t.Helper()
	await.That(d.t, "nobody to write to "+d.Dir, func() bool {
		return exec.Command("mount", "-o", "remount,ro", d.Dir).Run() == nil
	})
}

// Break has the kernel give the file system up after an error: XFS shuts down, ext4
// takes no writes any more.
func (d *Disk) Break() {
	d.t.Helper()
	if d.kind == Ext4 {
		trigger, err := filepath.EvalSymlinks(filepath.Join("/sys/fs/ext4", filepath.Base(d.device())))
		if err == nil {
			err = os.WriteFile(filepath.Join(trigger, "trigger_fs_error"), []byte("1"), 0)
		}

		if err != nil {
			d.t.Fatalf("break ext4: %v", err)
		}

		return
	}

	const withoutLog = 2 // XFS_FSOP_GOING_FLAGS_NOLOGFLUSH
	if err := d.ioctl(goingDown, withoutLog); err != nil {
		d.t.Fatalf("break XFS: %v", err)
	}
}

// device is what is mounted.
func (d *Disk) device() string {
	d.t.Helper()
	out, err := exec.Command("findmnt", "-n", "-o", "SOURCE", d.Dir).Output()
	if err != nil {
		d.t.Fatalf("findmnt: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// Freeze makes all writes hang until Thaw.
func (d *Disk) Freeze() {
	d.t.Helper()
	if err := d.ioctl(freeze, 0); err != nil {
		d.t.Fatalf("freeze: %v", err)
	}
}

// Thaw ends Freeze.
func (d *Disk) Thaw() {
	d.t.Helper()
	if err := d.ioctl(thaw, 0); err != nil {
		d.t.Fatalf("thaw: %v", err)
	}
}

// Fill takes all the room there is, and until Empty also what others give back: a try that was
// on the disk when Fill came would otherwise leave room for all tries after it.
func (d *Disk) Fill() {
	d.t.Helper()
	filler, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(d.t.Context())
	var filling sync.WaitGroup
	d.endFill = func() {
		cancel()
		filling.Wait()
	}

	d.t.Cleanup(d.endFill)

	end := d.allocate(filler, 0)
	filling.Go(func() {
		defer filler.Close()
		for ctx.Err() == nil {
			end = d.allocate(filler, end)
			select {
			case <-ctx.Done():
			case <-time.After(refill):
			}
		}
	})
}

// allocate has the file take all the room there is behind end, and returns the new end.
func (d *Disk) allocate(filler *os.File, end int64) int64 {
	for part := d.size; part >= 512; part /= 2 {
		for syscall.Fallocate(int(filler.Fd()), 0, end, part) == nil {
			end += part
		}
	}
	return end
}

// Empty ends Fill.
func (d *Disk) Empty() {
	d.t.Helper()
	d.endFill()
	if err := os.Remove(d.filler()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *Disk) filler() string { return filepath.Join(d.Dir, "filler") }

func (d *Disk) ioctl(request uintptr, flag uint32) error {
	f, err := os.Open(d.Dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(&flag))); errno != 0 {
		return errno
	}
	return nil
}
