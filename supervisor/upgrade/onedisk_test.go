package upgrade

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"saltern/image/grubenv"
)

// fakePartitions makes a sysfs in which each device number is a partition of a disk.
func fakePartitions(t *testing.T, disks map[uint64]string) string {
	t.Helper()
	sysfs := t.TempDir()
	links := filepath.Join(sysfs, "dev", "block")
	if err := os.MkdirAll(links, 0o755); err != nil {
		t.Fatal(err)
	}

	for number, disk := range disks {
		dir := filepath.Join(sysfs, "devices", disk, fmt.Sprint(disk, number))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}

		if disk != "dm-0" {
			if err := os.WriteFile(filepath.Join(dir, "partition"), []byte("1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		if err := os.Symlink(dir,
			filepath.Join(links, fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number)))); err != nil {
			t.Fatal(err)
		}
	}

	return sysfs
}

// TestUpgradeWritesToItsOwnDisk: with the disk of another machine attached a label may
// lead there (F13).
func TestUpgradeWritesToItsOwnDisk(t *testing.T) {
	one, two, other, mapped := unix.Mkdev(254, 1), unix.Mkdev(254, 2), unix.Mkdev(254, 17), unix.Mkdev(253, 0)
	sysfs := fakePartitions(t, map[uint64]string{one: "vda", two: "vda", other: "vdb", mapped: "dm-0"})
	for _, c := range []struct {
		name  string
		parts map[string]uint64
		wrong bool
	}{
		{name: "one disk", parts: map[string]uint64{"esp": one, "root": two}},
		{name: "two disks", parts: map[string]uint64{"esp": one, "root": other}, wrong: true},
		{name: "no partition", parts: map[string]uint64{"esp": one, "data": mapped, "root": unix.Mkdev(0, 40)}},
		{name: "nothing", parts: nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := sameDisk(sysfs, c.parts); errors.Is(err, ErrOtherDisk) != c.wrong || err != nil && !c.wrong {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestGivenUpVersionIsTold: a version that was tried and left by itself is told until its
// slot is filled anew; one that somebody took back, or that waits for its first boot, is
// not (F15).
func TestGivenUpVersionIsTold(t *testing.T) {
	b, key := version(t, "cloud")
	s := machine(t, "saltern.slot=a", grubenv.Env{"slot": "a"})
	install := func() {
		t.Helper()
		if _, err := s.Install(t.Context(), bytes.NewReader(b), []ed25519.PublicKey{key}, func(string) {}); err != nil {
			t.Fatal(err)
		}
	}

	gaveUp := func(when, want string) {
		t.Helper()
		if st, err := s.Status(); err != nil || st.GaveUp != want || (want == "") != st.GaveUpAt.IsZero() {
			t.Errorf("%s: %q at %v, want %q; %v", when, st.GaveUp, st.GaveUpAt, want, err)
		}
	}

	boots := func(cmdline string) {
		t.Helper()
		if err := os.WriteFile(s.Cmdline, []byte(cmdline+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	bootLoaderGivesUp := func() {
		t.Helper()
		if err := s.change(map[string]string{"next": "", "tries": ""}); err != nil {
			t.Fatal(err)
		}
		boots("saltern.slot=a")
	}

	gaveUp("before any upgrade", "")
	install()
	gaveUp("before its first boot", "")
	boots("saltern.slot=b saltern.try")
	gaveUp("on trial", "")
	bootLoaderGivesUp()
	gaveUp("given up", "b")
	install()
	gaveUp("filled anew", "")

	boots("saltern.slot=b saltern.try")
	if err := s.Good(); err != nil {
		t.Fatal(err)
	}

	gaveUp("good", "")
	if err := s.Back(); err != nil {
		t.Fatal(err)
	}

	boots("saltern.slot=a")
	gaveUp("taken back by somebody", "")
}
