// Package upgrade writes new versions of the system into the slot that is not running, selects them
// for a trial by the boot loader, and marks them good or returns to the earlier version.
//
// The disk has two slots, a and b: a partition root-a, root-b with a squashfs each, and the folders
// /a, /b on the EFI system partition with kernel, initial RAM disk and version. The variables in
// /grub/grubenv decide which slot is booted:
//
//	slot   the version that is known to be good
//	next   the version to try, with tries left; the boot loader counts down
//	       before it boots, so that it abandons a version that hangs or dies
//	       after these tries
//
// image/disk has the boot loader's side.
package upgrade

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"saltern/image/grubenv"
)

// tries is how often the boot loader boots a new version that is not marked good.
const tries = "2"

// System is the system of this machine. An empty path in it stands for the default path.
type System struct {
	ESP     string // mount point of the EFI system partition: /efi
	Devices string // folder of partitions by label: /dev/disk/by-partlabel
	Cmdline string // the kernel's options: /proc/cmdline
	Release string // /etc/os-release
	Data    string // a folder on the data partition: /var/lib/saltern
	Sysfs   string // /sys
	// Older permits the installation of a version that is older than the running one.
	Older bool
}

func or(s, usual string) string {
	if s != "" {
		return s
	}
	return usual
}

// Status says what the slots hold and which of them the boot loader will boot.
type Status struct {
	Running  string               // the slot that runs: a or b
	Trying   bool                 // the running version is on trial
	Good     string               // the slot whose version was marked good
	Next     string               // slot that is tried at the next boot; empty: none
	Versions map[string]string    // version in each slot; a slot that was never filled is missing
	Built    map[string]time.Time // build times by slot, of versions that an upgrade has written
	// GaveUp is the slot that the boot loader has abandoned, because its version was not marked
	// good within its tries. It is empty if there is no such slot, and after the slot was written
	// again. GaveUpAt is the time at which the trial was due.
	GaveUp   string
	GaveUpAt time.Time
	Flavour  string    // flavour of the kernel: cloud or generic
	Version  string    // the running version
	Created  time.Time // build time of the running version; zero: not known, because older versions do not record it
}

// ErrNoSlots means that this machine was not made from the image.
var ErrNoSlots = errors.New("upgrade: this machine does not run from the appliance's image; its packages are upgraded by the package manager (apt or dnf), programs of make install by make install")

var slotOption = regexp.MustCompile(`(?:^|\s)saltern\.slot=([ab])(?:\s|$)`)

// KeyDirs returns the folders of the public keys whose signatures on new versions are accepted: the
// image's own folder, and the administrator's.
func KeyDirs() []string {
	return []string{"/usr/lib/saltern/upgrade-keys", "/etc/saltern/upgrade-keys"}
}

// Other returns the slot that is not slot.
func Other(slot string) string {
	if slot == "a" {
		return "b"
	}
	return "a"
}

// Status reads the machine's state.
func (s *System) Status() (Status, error) {
	line, err := small(or(s.Cmdline, "/proc/cmdline"))
	if err != nil {
		return Status{}, fmt.Errorf("upgrade: %w", err)
	}

	m := slotOption.FindStringSubmatch(line)
	if m == nil {
		return Status{}, ErrNoSlots
	}

	env, err := grubenv.Load(s.env())
	if err != nil {
		return Status{}, fmt.Errorf("upgrade: %w", err)
	}

	st := Status{
		Running:  m[1],
		Trying:   hasWord(line, "saltern.try") && env["slot"] != m[1],
		Good:     env["slot"],
		Next:     env["next"],
		Versions: map[string]string{},
		Built:    map[string]time.Time{},
	}

	for _, slot := range []string{"a", "b"} {
		if v, err := small(filepath.Join(s.esp(), slot, "version")); err == nil {
			st.Versions[slot] = strings.TrimSpace(v)
		}

		if text, err := small(filepath.Join(s.esp(), slot, "created")); err == nil {
			if t, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(text)); err == nil {
				st.Built[slot] = t
			}
		}
	}

	if other := Other(st.Running); st.Next != other && st.Versions[other] != "" {
		if text, err := small(s.trial(other)); err == nil {
			if t, err := time.Parse(time.RFC3339, strings.TrimSpace(text)); err == nil {
				st.GaveUp, st.GaveUpAt = other, t
			}
		}
	}

	if release, err := small(or(s.Release, "/etc/os-release")); err == nil {
		for l := range strings.Lines(release) {
			name, v, _ := strings.Cut(strings.TrimSpace(l), "=")
			v = strings.Trim(v, `"`)
			switch name {
			case "VARIANT_ID":
				st.Flavour = v
			case "IMAGE_VERSION":
				st.Version = v
			case "IMAGE_CREATED":
				st.Created, _ = time.Parse(time.RFC3339, v)
			}
		}
	}

	return st, nil
}

func hasWord(line, word string) bool { return slices.Contains(strings.Fields(line), word) }

func (s *System) esp() string { return or(s.ESP, "/efi") }
func (s *System) env() string { return filepath.Join(s.esp(), "grub", "grubenv") }

// trial returns the path of a file that exists while the version in a slot is on trial: from its
// selection until it is marked good, or an administrator selects another slot.
func (s *System) trial(slot string) string { return filepath.Join(s.esp(), slot, "trial") }

func (s *System) device(slot string) string {
	return filepath.Join(or(s.Devices, "/dev/disk/by-partlabel"), "root-"+slot)
}

// change rewrites the boot loader's variables. An empty value removes a variable.
func (s *System) change(values map[string]string) error {
	env, err := grubenv.Load(s.env())
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}

	for k, v := range values {
		if v == "" {
			delete(env, k)
		} else {
			env[k] = v
		}
	}

	if err := env.Save(s.env()); err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}

	return nil
}

// Good marks the running version good: from now on the boot loader boots it.
func (s *System) Good() error {
	st, unlock, err := s.lockedStatus()
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.change(map[string]string{"slot": st.Running, "next": "", "tries": ""}); err != nil {
		return err
	}
	return remove(s.trial(st.Running))
}

// Try selects a slot for a trial from the next boot on.
func (s *System) Try(slot string) error {
	if err := s.change(map[string]string{"next": slot, "tries": tries}); err != nil {
		return err
	}
	// The version is installed and its trial is selected, so a failure to write this file is no
	// error. Without the file nobody notices that the boot loader abandoned the trial.
	_ = os.WriteFile(s.trial(slot), []byte(time.Now().UTC().Format(time.RFC3339)+"\n"), 0o600)
	return nil
}

// Back selects the other slot as the good one, if it holds a version.
func (s *System) Back() error {
	st, unlock, err := s.lockedStatus()
	if err != nil {
		return err
	}
	defer unlock()
	other := Other(st.Running)
	if st.Versions[other] == "" {
		return errors.New("upgrade: the other slot holds no version to go back to")
	}
	if err := s.change(map[string]string{"slot": other, "next": "", "tries": ""}); err != nil {
		return err
	}
	return remove(s.trial(st.Running))
}

// small reads a file of at most 64 KiB.
func small(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	return string(b), err
}
