package setup

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"saltern/glusterctl/disk"
	"saltern/internal/mountinfo"
	"saltern/supervisor/internal/probe"
)

// Look returns the facts of the machine. It changes nothing. bricks is the directory for a copy of
// the shared volume on a machine without a data disk.
func Look(_ context.Context, hostname, version, bricks string) Facts {
	f := Facts{
		Hostname:   hostname,
		Version:    version,
		Interfaces: interfaces(),
		Disks:      listDisks("/sys"),
		Managed:    managed(),
		Volume:     volumePossible(),
		LockedOut:  LockedOut(),
		EC2:        probe.OnEC2(probe.DMI),
	}

	f.DNS, f.Search = resolvers("/run/systemd/resolve/resolv.conf", "/etc/resolv.conf")
	if err := disk.CheckRoot(bricks); err != nil {
		f.NoBricks = err.Error()
	}

	return f
}

// managedMark is a file of the appliance's image. If the file exists, the set-up may change the
// machine's network.
const managedMark = "/etc/systemd/network/80-saltern-default.network"

func managed() bool {
	_, err := os.Stat(managedMark)
	return err == nil
}

// listDisks returns the block devices that could hold data, without their partitions. It omits the
// device from which the system runs.
func listDisks(sys string) []Disk {
	out := []Disk{}
	root := rootDevice(mountinfo.Self)
	entries, err := os.ReadDir(filepath.Join(sys, "block"))
	if err != nil {
		return out
	}

	for _, e := range entries {
		name := e.Name()
		if hasPrefix(name, "loop", "ram", "zram", "sr", "fd", "dm-", "md", "nbd") {
			continue
		}

		dir := filepath.Join(sys, "block", name)
		sectors, err := strconv.ParseUint(readWord(filepath.Join(dir, "size")), 10, 64)
		if err != nil || sectors == 0 || readWord(filepath.Join(dir, "ro")) == "1" {
			continue
		}
		if holdsDevice(dir, name, root) {
			continue
		}

		d := Disk{Path: "/dev/" + name, Size: sectors * 512, Model: readWord(filepath.Join(dir, "device", "model"))}
		d.Why = occupied(dir, name, d.Path)
		d.Empty = d.Why == ""
		out = append(out, d)
	}

	return out
}

// rootDevice reads mountinfo at path and returns the number (such as 8:1) of the device with the
// root file system, or "".
func rootDevice(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	dev := ""
	for m := range mountinfo.Parse(string(b)) {
		if m.Point == "/" {
			dev = m.Device // the last mount on / hides the earlier ones
		}
	}
	return dev
}

// holdsDevice reports whether a device is a disk or one of its partitions.
func holdsDevice(dir, name, dev string) bool {
	all, _ := filepath.Glob(filepath.Join(dir, name+"*", "dev"))
	return dev != "" && slices.ContainsFunc(append(all, filepath.Join(dir, "dev")),
		func(p string) bool { return readWord(p) == dev })
}

// occupied returns a phrase that says what is on a disk, or "" when the disk is empty.
func occupied(dir, name, dev string) string {
	parts, _ := filepath.Glob(filepath.Join(dir, name+"*"))
	if len(parts) > 0 {
		return fmt.Sprintf("%d partitions", len(parts))
	}

	if held, _ := os.ReadDir(filepath.Join(dir, "holders")); len(held) > 0 {
		return "used by " + held[0].Name()
	}

	f, err := os.OpenFile(dev, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "cannot be read: " + err.(*fs.PathError).Err.Error()
	}
	defer f.Close()

	head := make([]byte, 1<<20) // partition tables and all common file systems begin within the first MiB
	n, err := f.Read(head)
	if err != nil {
		return "cannot be read"
	}

	for _, b := range head[:n] {
		if b != 0 {
			return "holds data"
		}
	}

	return ""
}

func readWord(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b[:min(len(b), 256)]))
}

func hasPrefix(s string, list ...string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return strings.HasPrefix(s, p) })
}
