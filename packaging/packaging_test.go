package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/glusterctl/cert"
)

// installed is what make install puts into a tree.
func installed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := os.Stat("../bin/applianced"); err != nil {
		t.Skip("NOT TESTED: nothing is built: make build")
	}
	if out, err := exec.Command("make", "-s", "-C", "..", "install", "DESTDIR="+dir,
		"PREFIX=/opt/saltern").CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	return dir
}

// TestInstall: everything is below the prefix, the units start what is there,
// and systemd finds nothing wrong with them. make uninstall leaves nothing.
func TestInstall(t *testing.T) {
	dir := installed(t)
	top := filepath.Join(dir, "opt/saltern")
	for _, f := range []string{"bin/applianced", "bin/salt-master", "bin/salt-api", "bin/salt-key",
		"lib/systemd/system/saltern-api.service", "lib/systemd/system/applianced.service",
		"lib/systemd/system/saltern-vip.service", "lib/systemd/system/saltern-pam.socket",
		"lib/systemd/system/saltern-pam@.service",
		"lib/sysusers.d/saltern.conf", "share/bash-completion/completions/applianced", "share/man/man8/applianced.8", "share/man/man8/applianced-reset.8"} {
		if fi, err := os.Stat(filepath.Join(top, f)); err != nil || fi.Size() == 0 {
			t.Errorf("%s: %v", f, err)
		}
	}

	units, _ := filepath.Glob(filepath.Join(top, "lib/systemd/system/*"))
	beside := t.TempDir() // of each other: a socket names its service
	for i, u := range units {
		b, err := os.ReadFile(u)
		if err != nil || strings.Contains(string(b), "/usr/local/") {
			t.Errorf("%s: %v, or the prefix is not in it", u, err)
		}

		// Verified with the programs where the units look for them.
		units[i] = filepath.Join(beside, filepath.Base(u))
		b = bytes.ReplaceAll(b, []byte("/opt/saltern/bin/"), []byte(top+"/bin/"))
		b = bytes.ReplaceAll(b, []byte("/usr/sbin/keepalived"), []byte("/bin/true"))
		if err := os.WriteFile(units[i], b, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	for _, u := range units {
		verify(t, u)
	}

	if out, err := exec.Command("make", "-s", "-C", "..", "uninstall", "DESTDIR="+dir,
		"PREFIX=/opt/saltern").CombinedOutput(); err != nil {
		t.Fatalf("make uninstall: %v\n%s", err, out)
	}

	_ = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("left: %s", p)
		}
		return nil
	})
}

func verify(t *testing.T, unit string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("NOT TESTED: systemd-analyze is missing")
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("%s: %v\n%s", filepath.Base(unit), err, out)
	}
}

// TestAsHardAsTheImage: the unit for a host has all the limits of the image's,
// but for those that would take an administrator's directories away.
func TestAsHardAsTheImage(t *testing.T) {
	looser := []string{"After", "Wants", "WatchdogSec", "ExecStart", "ProtectSystem", "ReadWritePaths",
		"ProtectHome", "BindPaths"}
	host := lines(t, "applianced.service")
	image := lines(t, "../image/profile/overlay/usr/lib/systemd/system/applianced.service")
	for _, l := range image {
		key, _, _ := strings.Cut(l, "=")
		if !slices.Contains(host, l) && !slices.Contains(looser, key) {
			t.Errorf("the host's unit has no %s", l)
		}
	}
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for l := range strings.Lines(string(b)) {
		if l = strings.TrimSpace(l); strings.Contains(l, "=") && !strings.HasPrefix(l, "#") {
			out = append(out, l)
		}
	}
	return out
}

// TestUnitsBoundMemory (second audit, 7): no program of ours takes the machine's memory, whatever
// strangers send it.
func TestUnitsBoundMemory(t *testing.T) {
	units, err := filepath.Glob("*.service")
	ofImage, err2 := filepath.Glob("../image/profile/overlay/usr/lib/systemd/system/*.service")
	if err != nil || err2 != nil || len(units) < 6 || len(ofImage) < 6 {
		t.Fatal(units, ofImage, err, err2)
	}
	for _, unit := range append(units, ofImage...) {
		all := lines(t, unit)
		bounded := slices.ContainsFunc(all, func(l string) bool { return strings.HasPrefix(l, "MemoryMax=") })
		if !bounded && !slices.Contains(all, "Type=oneshot") {
			t.Errorf("%s has no MemoryMax", unit)
		}
	}
}

// TestCertificatesCanBeWritten: on a host GlusterFS reads the volume's certificate where
// the unit's system is otherwise read-only.
func TestCertificatesCanBeWritten(t *testing.T) {
	for _, l := range lines(t, "applianced.service") {
		if value, ok := strings.CutPrefix(l, "ReadWritePaths="); ok &&
			slices.Contains(strings.Fields(value), "-"+cert.Dir) {
			return
		}
	}
	t.Errorf("applianced.service does not let certificates be written into %s", cert.Dir)
}
