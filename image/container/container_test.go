package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/image/oci"
)

// options of an image whose programs do nothing, but are static Go programs for this
// kind of machine.
func options(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	write := func(path, text string) {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	write("src/go.mod", "module x\n")
	write("src/main.go", "package main\n\nfunc main() {}\n")
	write("certificates/b.crt", "second\n\n")
	write("certificates/a.crt", "first")
	write("certificates/README", "none")
	bin := filepath.Join(dir, "bin", runtime.GOARCH)
	cmd := exec.Command("go", "build", "-o", filepath.Join(bin, programs[0]), ".")
	cmd.Dir = filepath.Join(dir, "src")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	for _, p := range programs[1:] {
		if err := os.Link(filepath.Join(bin, programs[0]), filepath.Join(bin, p)); err != nil {
			t.Fatal(err)
		}
	}

	return Options{Version: "1.2.3", Created: time.Unix(1750000000, 0), Programs: filepath.Join(dir, "bin"),
		Arch: []string{runtime.GOARCH}, Certificates: filepath.Join(dir, "certificates")}
}

// TestImage: the image has the programs, an account that owns what the master
// writes to and nothing else, and the certificates of the folder that was named.
func TestImage(t *testing.T) {
	o := options(t)
	img, err := Image(o)
	if err != nil {
		t.Fatal(err)
	}

	if img.Ref != "saltern:1.2.3" || img.Labels["org.opencontainers.image.version"] != "1.2.3" ||
		img.Config.User != "450:450" {
		t.Errorf("%+v", img)
	}

	entries := map[string]oci.Entry{}
	var writable []string
	for _, l := range img.Platforms[0].Layers {
		for _, e := range l {
			entries[e.Path] = e
			if e.Owner != 0 {
				writable = append(writable, e.Path)
			}
		}
	}

	slices.Sort(writable)
	if want := []string{"etc/salt/pki", "etc/salt/pki/master", "etc/saltern", "run/salt", "run/saltern",
		"srv/cluster", "var/cache/salt", "var/lib/saltern", "var/log/salt"}; !slices.Equal(writable, want) {
		t.Errorf("%q belong to the account, want %q", writable, want)
	}

	for path, want := range map[string]string{
		"etc/passwd": "salt:x:450:450:", "etc/group": "salt:x:450:", "etc/os-release": "VERSION_ID=1.2.3\n",
		"etc/salt/master.d/saltern.conf": "user: salt\n", "etc/ssl/certs/ca-certificates.crt": "first\nsecond\n",
	} {
		if !strings.Contains(string(entries[path].Data), want) {
			t.Errorf("%s: %q", path, entries[path].Data)
		}
	}

	for _, p := range []string{"applianced", "salt-master", "salt-api", "salt"} {
		if e := entries["usr/bin/"+p]; e.Source == "" || e.Mode != 0o755 {
			t.Errorf("%s: %+v", p, e)
		}
	}

	for _, p := range []string{"salt-key", "salt-run", "salt-cp"} {
		if e := entries["usr/bin/"+p]; e.Link != "salt" {
			t.Errorf("%s: %+v", p, e)
		}
	}

	if _, there := entries["usr/bin/"+img.Config.Cmd[0]]; !there {
		t.Errorf("the command %q is not in the image", img.Config.Cmd)
	}

	if err := oci.Write(filepath.Join(t.TempDir(), "oci"), img); err != nil {
		t.Error(err)
	}
}

// TestBelow: a tree lies below the image's own layers, whose system says itself what
// it is, and is for one kind of machine.
func TestBelow(t *testing.T) {
	o := options(t)
	o.Below = t.TempDir()
	if err := os.WriteFile(filepath.Join(o.Below, "python3"), []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}

	img, err := Image(o)
	if err != nil {
		t.Fatal(err)
	}

	layers := img.Platforms[0].Layers
	if img.Ref != "saltern:1.2.3-python" || len(layers) != 3 || len(layers[0]) != 1 || layers[0][0].Path != "python3" {
		t.Errorf("%s: %d layers, the lowest of %v", img.Ref, len(layers), layers[0])
	}

	for _, e := range layers[1] {
		if e.Path == "etc/os-release" {
			t.Errorf("%s hides that of the tree", e.Path)
		}
	}

	o.Arch = append(o.Arch, "riscv64")
	if _, err := Image(o); err == nil || !strings.Contains(err.Error(), "one kind of machine") {
		t.Errorf("two kinds of machines: %v", err)
	}
}

// TestRefused: a program for another machine, no program, and no certificates.
func TestRefused(t *testing.T) {
	o := options(t)
	other := o
	other.Arch = []string{"riscv64"}
	if _, err := Image(other); err == nil || !strings.Contains(err.Error(), "make packages-parts ARCH=riscv64") {
		t.Errorf("no programs: %v", err)
	}

	if err := os.Rename(filepath.Join(o.Programs, runtime.GOARCH), filepath.Join(o.Programs, "riscv64")); err != nil {
		t.Fatal(err)
	}

	if _, err := Image(other); err == nil || !strings.Contains(err.Error(), "not a static program for linux/riscv64") {
		t.Errorf("programs of another machine: %v", err)
	}

	o.Certificates = t.TempDir()
	if _, err := Image(o); err == nil || !strings.Contains(err.Error(), "apt-get install ca-certificates") {
		t.Errorf("no certificates: %v", err)
	}
}
