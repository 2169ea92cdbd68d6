package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNewestPackage: a tree is as new as its newest package, wherever that is (B2). Files
// that are not a package's, and those that its scripts have changed, say nothing.
func TestNewestPackage(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	stamp, file := filepath.Join(dir, "stamp"), filepath.Join(dir, newestFile)
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	for path, at := range map[string]time.Time{
		root + "/usr/bin/old": day(1), root +
			"/usr/bin/new": day(16), root + "/usr/bin/changed": day(25), root + "/usr/lib/cache": day(19),
		root + "/var/lib/dpkg/info/one.list": day(1), root + "/var/lib/dpkg/info/two.list": day(1), stamp: day(20),
	} {
		text := ""
		switch filepath.Base(path) {
		case "one.list":
			text = "/.\n/usr\n/usr/bin\n/usr/bin/old\n/usr/bin/left out by dpkg\n"
		case "two.list":
			text = "/usr/bin/new\n/usr/bin/changed\n"
		}

		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}

	hook := strings.TrimPrefix(noteNewest(stamp, file), "--customize-hook=")
	if out, err := exec.Command("sh", "-c", hook, "exec", root).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}

	if at, err := newestPackage(dir); err != nil || !at.Equal(day(16)) {
		t.Errorf("%v %v", at, err)
	}

	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Log("NOT TESTED with a kernel's package: ", err)
		return
	}

	pack := filepath.Join(dir, "pack", "DEBIAN")
	if err := os.MkdirAll(pack, 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(pack, "control"),
		[]byte("Package: k\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n"),
		0o644); err != nil {
		t.Fatal(err)
	}

	debs := filepath.Join(dir, "kernel-cloud")
	if err := os.Mkdir(debs, 0o755); err != nil {
		t.Fatal(err)
	}

	build := exec.Command("dpkg-deb", "--build", filepath.Dir(pack), filepath.Join(debs, "k.deb"))
	build.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1795219200") // 2026-11-21
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}

	if at, err := newestPackage(dir); err != nil || !at.Equal(day(21)) {
		t.Errorf("with a kernel: %v %v", at, err)
	}

	if err := os.WriteFile(filepath.Join(debs, "x.deb"), []byte("no package"), 0o600); err != nil {
		t.Fatal(err)
	}

	if at, err := newestPackage(dir); err == nil {
		t.Errorf("a broken package is from %v", at)
	}

	if at, err := newestPackage(t.TempDir()); err != nil || !at.IsZero() {
		t.Errorf("a cache of before: %v %v", at, err)
	}
}
