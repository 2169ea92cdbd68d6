// Package box packs disks as boxes for Vagrant. A box is a tar archive of a description, a
// Vagrantfile and the disk: for libvirt a QEMU disk named box.img, for VirtualBox the descriptor
// and the disk of an OVA. Sources are the manuals of Vagrant (Boxes, Box File Format) and of
// vagrant-libvirt (Box Format).
package box

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"saltern/image/internal/tarball"
)

// vagrantfile is the default configuration of every machine made from the box. With it Vagrant logs
// in with the account of the set-up, shares no folder of the host, and installs no key of its own.
const vagrantfile = `Vagrant.configure("2") do |config|
  config.ssh.username = "admin"
  config.ssh.insert_key = false
  config.vm.synced_folder ".", "/vagrant", disabled: true
%send
`

// maxDescriptor bounds, in bytes, the descriptor of an OVA, which is read before packing.
const maxDescriptor = 1 << 20

// Libvirt packs a qcow2 disk. A machine gets a disk of gib GiB.
func Libvirt(out, qcow2 string, gib int, epoch time.Time) error {
	disk, err := os.Open(qcow2)
	if err != nil {
		return fmt.Errorf("box: %w", err)
	}
	defer disk.Close()

	fi, err := disk.Stat()
	if err != nil {
		return fmt.Errorf("box: %w", err)
	}

	files, err := described(map[string]any{"provider": "libvirt", "format": "qcow2", "virtual_size": gib}, "")
	if err != nil {
		return err
	}

	files = append(files, tarball.Member{Name: "box.img", Size: fi.Size(), Reader: disk})
	return writeBox(out, files, epoch)
}

// mac is the line with the address of the first interface, which the VirtualBox provider needs.
const mac = `  config.vm.base_mac = "080027A11CE0"
`

// VirtualBox packs the contents of an OVA: its descriptor, as box.ovf, and its disk.
func VirtualBox(out, ova string, epoch time.Time) error {
	f, err := os.Open(ova)
	if err != nil {
		return fmt.Errorf("box: %w", err)
	}
	defer f.Close()

	files, err := described(map[string]any{"provider": "virtualbox"}, mac)
	if err != nil {
		return err
	}

	t := tar.NewReader(f)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("box: %s has no disk", ova)
		}
		if err != nil {
			return fmt.Errorf("box: read %s: %w", ova, err)
		}

		switch path.Ext(h.Name) {
		case ".ovf":
			text, err := io.ReadAll(io.LimitReader(t, maxDescriptor))
			if err != nil {
				return fmt.Errorf("box: read %s: %w", ova, err)
			}
			files = append(files, tarball.Member{Name: "box.ovf", Size: int64(len(text)), Reader: bytes.NewReader(text)})
		case ".vmdk": // the disk is the last file of the OVA: pack it while it is read
			return writeBox(out, append(files, tarball.Member{Name: h.Name, Size: h.Size, Reader: t}), epoch)
		}
	}
}

func described(metadata map[string]any, extra string) ([]tarball.Member, error) {
	text, err := json.Marshal(metadata)
	if err != nil {
		return nil, fmt.Errorf("box: %w", err)
	}
	ruby := fmt.Sprintf(vagrantfile, extra)
	return []tarball.Member{
		{Name: "metadata.json", Size: int64(len(text)), Reader: bytes.NewReader(text)},
		{Name: "Vagrantfile", Size: int64(len(ruby)), Reader: strings.NewReader(ruby)},
	}, nil
}

func writeBox(out string, files []tarball.Member, epoch time.Time) error {
	if err := tarball.Write(out, files, epoch); err != nil {
		return fmt.Errorf("box: %w", err)
	}
	return nil
}
