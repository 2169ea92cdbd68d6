package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// packaged makes the packages of what is built, of version 1.2.3.
func packaged(t *testing.T) string {
	t.Helper()
	for _, f := range []string{"../bin/nfpm", "../bin/applianced", "../bin/packages/" + runtime.GOARCH + "/salt-api"} {
		if _, err := os.Stat(f); err != nil {
			t.Skip("NOT TESTED: no packages were built: make packages")
		}
	}
	dir := t.TempDir()
	run(t, "../scripts/packages", "v1.2.3", runtime.GOARCH, dir)
	return dir
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out)
}

func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("NOT TESTED: %s is missing: apt-get install dpkg rpm systemd", p)
		}
	}
}

// files lists what lies below a folder, folders left out.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(p, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPackages: everything that make install lays down is in one package of each
// kind, nothing of it has a name that Salt's packages have, both kinds hold the
// same, the units start what is there, and made again the packages are the same
// bytes.
func TestPackages(t *testing.T) {
	needs(t, "dpkg-deb", "rpm")
	dir, again := packaged(t), packaged(t)
	arch := strings.TrimSpace(run(t, "dpkg", "--print-architecture"))
	var debs, rpms []string
	for _, p := range []string{"saltern-appliance", "saltern-lb", "saltern-master", "saltern-tools"} {
		debs = append(debs, filepath.Join(dir, p+"_1.2.3-1_"+arch+".deb"))
		found, _ := filepath.Glob(filepath.Join(dir, p+"-1.2.3-1.*.rpm"))
		rpms = append(rpms, found...)
	}

	if len(rpms) != len(debs) || len(files(t, dir)) != 2*len(debs) {
		t.Fatalf("made were %v", files(t, dir))
	}

	for _, f := range files(t, dir) {
		a, err := os.ReadFile(filepath.Join(dir, f))
		b, errB := os.ReadFile(filepath.Join(again, f))
		if err != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s made again is another: %v %v", f, err, errB)
		}
	}

	tree := t.TempDir()
	owner := map[string]string{}
	for i := range debs {
		var inDeb []string
		one := t.TempDir()
		run(t, "dpkg-deb", "-x", debs[i], one)
		run(t, "dpkg-deb", "-x", debs[i], tree)

		for _, f := range files(t, one) {
			if other := owner[f]; other != "" {
				t.Errorf("%s is in %s and in %s", f, other, debs[i])
			}
			owner[f] = debs[i]
			if !strings.HasPrefix(f, "/usr/share/lintian/") {
				inDeb = append(inDeb, f)
			}
		}

		inRPM := strings.Fields(run(t, "rpm", "-qpl", rpms[i]))
		slices.Sort(inDeb)
		slices.Sort(inRPM)
		if !slices.Equal(inDeb, inRPM) {
			t.Errorf("%s has\n%v\nand %s\n%v", debs[i], inDeb, rpms[i], inRPM)
		}
	}

	laid := t.TempDir()
	run(t, "make", "-s", "-C", "..", "install", "DESTDIR="+laid, "PREFIX=/usr",
		"BINDIR=/usr/lib/saltern/bin", "PROGRAMS=bin/packages/"+runtime.GOARCH)
	for _, f := range files(t, laid) {
		if owner[f] == "" && owner[f+".gz"] == "" {
			t.Errorf("no package has %s", f)
		}
	}

	for f := range owner {
		if strings.HasPrefix(f, "/etc/") || strings.HasPrefix(f, "/usr/bin/salt") {
			t.Errorf("%s may be of Salt's own package", f)
		}
	}

	verifyTree(t, tree)
	unpackRPMs(t, rpms)
}

// TestPackageVersions: a version that is no version of a package is refused, and
// what git says sorts where it belongs.
func TestPackageVersions(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{"1.2.3", "1.2.3"},
		{"v1.2.3", "1.2.3"},
		{"v1.2.3-rc1", "1.2.3~rc1"},
		{"v1.2.3-5-gabc1234-dirty", "1.2.3+5.gabc1234+dirty"},
		{"abc1234-dirty", "0~19700101.abc1234+dirty"},
		{"83be18b", "0~19700101.83be18b"}, // a commit
	} {
		cmd := exec.Command("../scripts/packages", "version", c.given)
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1")
		if got, err := cmd.Output(); err != nil || strings.TrimSpace(string(got)) != c.want {
			t.Errorf("%s: version %s, want %s (%v)", c.given, got, c.want, err)
		}
	}

	out, err := exec.Command("../scripts/packages", "version", "1.2/3").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "1.2.3") {
		t.Errorf("1.2/3: %v %s", err, out)
	}
}

// unpackRPMs: rpm unpacks the packages into a tree, systemd finds nothing wrong
// with the units there, and the scripts are those of the Debian packages.
func unpackRPMs(t *testing.T, rpms []string) {
	t.Helper()
	tree := t.TempDir()
	// Its database in the tree; no scripts, which need programs there.
	run(t, append([]string{"rpm", "--root", tree, "--dbpath", "/db", "--nodeps", "--noscripts", "-i"}, rpms...)...)
	verifyTree(t, tree)
	for _, p := range rpms {
		if out := run(t, "rpm", "-qp", "--scripts", p); !strings.Contains(out, "systemctl daemon-reload") {
			t.Errorf("%s: scripts\n%s", p, out)
		}
	}
}

// verifyTree has systemd look at all units of a tree.
func verifyTree(t *testing.T, tree string) {
	t.Helper()
	needs(t, "systemd-analyze")
	for _, p := range []string{"bin/kill", "usr/sbin/keepalived"} { // of other packages
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, p), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	units, _ := filepath.Glob(filepath.Join(tree, "usr/lib/systemd/system/*.service"))
	if len(units) != 6 {
		t.Errorf("units: %v", units)
	}

	for _, u := range units {
		out, err := exec.Command("systemd-analyze", "verify", "--root="+tree, "--man=no",
			"--recursive-errors=no", filepath.Base(u)).CombinedOutput()
		if err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%s: %v\n%s", filepath.Base(u), err, out)
		}
	}
}
