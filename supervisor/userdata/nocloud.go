package userdata

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"saltern/internal/onedoc"
	"saltern/supervisor/setup"
)

// seedLabels are the labels of a disk with answers, as in cloud-init (DataSourceNoCloud). Their
// case does not matter.
var seedLabels = []string{"cidata"}

// Files on a seed disk: our own file, and the file that cloud-init also reads.
const (
	ownSeed    = "saltern.yaml"
	sharedSeed = "user-data"
	metaSeed   = "meta-data"
)

// unreadSeeds lists the files of NoCloud that are only for cloud-init, and why we do not read them.
var unreadSeeds = []struct{ name, why string }{
	{"network-config", "the network is set by network: in the answers"},
	{"vendor-data", "answers stand in user-data"},
}

// seedFailures is the name of the file in which saltern-seed.service reports its faults.
const seedFailures = "failed"

// noCloud looks for answers in the seed directories, then on disks with the label cidata, which it
// mounts read-only for the search.
func (p Places) noCloud(_ context.Context, s *search) {
	for _, dir := range p.Seeds {
		s.seedFolder(dir)
		if s.decided() {
			return
		}
	}
	if p.Devices != "" {
		p.onDisk(s, seedLabels, s.seedFolder)
	}
}

// seedFolder looks for answers in the files of NoCloud in a folder.
func (s *search) seedFolder(dir string) {
	for _, f := range readFolder(dir, []string{ownSeed, sharedSeed}) {
		switch {
		case f.err != nil && f.name == ownSeed:
			s.endWithFault(f.name, f.err)
		case f.err != nil:
			s.noteForeign(f.name, ": "+f.err.Error())
		case f.name == ownSeed:
			s.document(f.name, f.text, oursAlone)
		default:
			s.document(f.name, f.text, shared)
		}

		if s.fault != nil {
			return
		}
		if s.answers != nil {
			s.metaData(dir)
			break
		}
	}

	for _, unread := range unreadSeeds {
		if st, err := os.Stat(filepath.Join(dir, unread.name)); err == nil && st.Size() > 0 {
			s.noteUnused(s.nameAt(unread.name) + " is not read: " + unread.why)
		}
	}

	if text, _ := readFile(filepath.Join(dir, seedFailures), maxText); len(text) > 0 {
		s.unreachable("", errors.New(strings.TrimSpace(string(text))))
	}
}

// metaData sets the machine's name from NoCloud's meta-data, if the answers have none.
func (s *search) metaData(dir string) {
	text, err := readFile(filepath.Join(dir, metaSeed), maxText)
	if err != nil {
		s.noteUnused(s.nameAt(metaSeed) + " is not read: " + err.Error())
		return
	}

	var meta struct {
		Instance string `yaml:"instance-id"`
		Hostname string `yaml:"local-hostname"`
	}

	if err := onedoc.Decode(text, &meta); err != nil {
		s.noteUnused(s.nameAt(metaSeed) + " is not read: it is not one YAML document")
		return
	}

	if meta.Instance != "" {
		s.log.Info("this machine's instance", "path", s.source, "instance", meta.Instance)
	}

	if meta.Hostname == "" || s.answers.Node != "" || s.answers.Network.Hostname != "" {
		return
	}
	if !setup.PlainName(meta.Hostname) {
		s.noteUnused(s.nameAt(metaSeed) + ": local-hostname is not used: it is no plain host name")
		return
	}

	s.answers.Node = meta.Hostname
}

// seedFile is the content of a file in a folder, or the error of reading it.
type seedFile struct {
	name string
	text []byte
	err  error
}

// readFolder reads those of the named files that exist.
func readFolder(dir string, names []string) (files []seedFile) {
	for _, name := range names {
		text, err := readFile(filepath.Join(dir, name), MaxGiven)
		if text != nil || err != nil {
			files = append(files, seedFile{name, text, err})
		}
	}
	return files
}

// onDisk mounts the disks with one of the labels, one after another, and calls look with the mount
// point of each until the search has ended.
func (p Places) onDisk(s *search, labels []string, look func(dir string)) {
	entries, err := os.ReadDir(p.Devices)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.unreachable("", err)
		}
		return
	}
	for _, e := range entries {
		if label := diskLabel(e.Name()); hasLabel(labels, label) && !s.decided() {
			p.mounted(s, filepath.Join(p.Devices, e.Name()), label, look)
		}
	}
}

// mounted mounts one disk and calls look with its folder.
func (p Places) mounted(s *search, device, label string, look func(dir string)) {
	err := withMounted(device, look)
	switch {
	case err == nil:
	case errors.Is(err, unix.EPERM) && p.seedService():
		// saltern-seed.service has read the disk already.
	case errors.Is(err, unix.EPERM):
		s.noteUnused(fmt.Sprintf("a disk labelled %s is there, which this service may not mount: "+
			"copy its answers to /etc/saltern/answers.yaml, or give them to applianced setup start",
			label))
	default:
		s.unreachable("", fmt.Errorf("the disk labelled %s: %w", label, err))
	}
}

// seedService reports whether this machine has saltern-seed.service, which reads seed disks for
// this process.
func (p Places) seedService() bool {
	for _, dir := range p.Seeds {
		if _, err := os.Stat(dir); err == nil && dir == seedFolder {
			return true
		}
	}
	return false
}

// diskLabel decodes a label that udev has encoded as a file's name: OVF\x20ENV.
func diskLabel(name string) string {
	return escapedByte.ReplaceAllStringFunc(name, func(escape string) string {
		c, _ := strconv.ParseUint(escape[2:], 16, 8) // escapedByte has checked the form
		return string([]byte{byte(c)})
	})
}

// escapedByte matches a byte as udev encodes it.
var escapedByte = regexp.MustCompile(`\\x[0-9a-f]{2}`)

func hasLabel(labels []string, label string) bool {
	for _, l := range labels {
		if strings.EqualFold(l, label) {
			return true
		}
	}
	return false
}

// withMounted mounts a disk read-only, calls look with its folder, and unmounts the disk.
func withMounted(device string, look func(dir string)) (err error) {
	dir, err := os.MkdirTemp("", "saltern-seed-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()

	var last error
	for _, kind := range []string{"iso9660", "vfat", "ext4"} {
		if last = unix.Mount(device, dir, kind, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
			""); last == nil {
			break
		}
	}

	if last != nil {
		return fmt.Errorf("it cannot be mounted: %w", last)
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)) }()

	look(dir)
	return nil
}
