package profile

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestProfile(t *testing.T) {
	packages, err := Packages()
	if err != nil || !slices.Contains(packages, "glusterfs-server") || !slices.Contains(packages, "kbd") ||
		!slices.Contains(packages, "console-data") || !slices.IsSorted(packages) {
		t.Errorf("%q %v", packages, err)
	}

	flavours, err := Flavours()
	if err != nil || flavours["cloud"].Package == "" || flavours["generic"].Name != "generic" {
		t.Errorf("%v %v", flavours, err)
	}

	req, err := Requirements()
	if err != nil {
		t.Fatal(err)
	}

	if pinned := regexp.MustCompile(`(?m)^[A-Za-z0-9_.-]+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}$`).FindAll(req, -1); len(pinned) < 30 || len(pinned) != strings.Count(string(req), "==") {
		t.Errorf("%d of %d packages are pinned by hash", len(pinned), strings.Count(string(req), "=="))
	}

	files, err := Overlay()
	if err != nil {
		t.Fatal(err)
	}

	modes := map[string]fs.FileMode{
		"usr/lib/systemd/system/saltern-keyboard.service":   0o644,
		"usr/libexec/saltern/console":                       0o755,
		"etc/sudoers.d/saltern":                             0o440,
		"usr/lib/saltern/nftables.conf":                     0o644,
		"usr/libexec/saltern/rules":                         0o755,
		"etc/initramfs-tools/scripts/init-bottom/saltern":   0o755,
		"etc/initramfs-tools/scripts/init-premount/saltern": 0o755,
	}

	for _, f := range files {
		if want, ok := modes[f.Path]; ok && f.Mode != want {
			t.Errorf("%s has mode %v", f.Path, f.Mode)
		}
		delete(modes, f.Path)
		if strings.HasPrefix(f.Path, "/") || len(f.Content) == 0 {
			t.Errorf("%q with %d bytes", f.Path, len(f.Content))
		}
	}

	if len(modes) > 0 {
		t.Errorf("not there: %v", modes)
	}
}

func TestParsePackages(t *testing.T) {
	got, err := parsePackages("packages.list", []byte("# a list\nbash # a shell\n\napt\n"))
	if err != nil || !slices.Equal(got, []string{"apt", "bash"}) {
		t.Errorf("%q %v", got, err)
	}
	for _, bad := range []string{"bash\nbash", "two words", "-o", "UPPER", "a;b"} {
		if got, err := parsePackages("packages.list", []byte(bad)); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}
