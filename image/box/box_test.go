package box

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/image/ova"
)

var epoch = time.Unix(1750000000, 0)

// disk makes a raw disk.
func disk(t *testing.T, dir string) string {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("NOT TESTED: qemu-img is not installed")
	}
	raw := filepath.Join(dir, "raw")
	if err := os.WriteFile(raw, append([]byte("a disk"), make([]byte, 1<<20-6)...), 0o600); err != nil {
		t.Fatal(err)
	}
	return raw
}

// unpack gives the files of a box, in their order.
func unpack(t *testing.T, path string) (names []string, content map[string][]byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	content = map[string][]byte{}
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, content
		}
		if err != nil {
			t.Fatal(err)
		}

		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}

		names, content[h.Name] = append(names, h.Name), b
	}
}

// take has Vagrant take a box, if it is there.
func take(t *testing.T, path, provider string) {
	t.Helper()
	if _, err := exec.LookPath("vagrant"); err != nil {
		t.Skip("NOT TESTED by Vagrant: it is not installed (apt-get install vagrant)")
	}
	cmd := exec.Command("vagrant", "box", "add", "--name", "saltern", "--provider", provider, path)
	cmd.Env = append(os.Environ(), "VAGRANT_HOME="+t.TempDir(), "VAGRANT_CHECKPOINT_DISABLE=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "Successfully added box") {
		t.Errorf("vagrant box add: %v\n%s", err, out)
	}
}

func TestLibvirt(t *testing.T) {
	dir := t.TempDir()
	raw, qcow2, out := disk(t, dir), filepath.Join(dir, "qcow2"), filepath.Join(dir, "saltern.box")
	if text, err := exec.Command("qemu-img", "convert", "-O", "qcow2", raw, qcow2).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}

	if err := Libvirt(out, qcow2, 8, epoch); err != nil {
		t.Fatal(err)
	}

	names, content := unpack(t, out)
	if want := []string{"metadata.json", "Vagrantfile", "box.img"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}

	var m struct {
		Provider, Format string
		Size             int `json:"virtual_size"`
	}

	if err := json.Unmarshal(content["metadata.json"], &m); err != nil || m.Provider != "libvirt" ||
		m.Format != "qcow2" || m.Size != 8 {
		t.Errorf("%s: %v", content["metadata.json"], err)
	}

	if !strings.HasPrefix(string(content["box.img"]), "QFI\xfb") {
		t.Error("box.img is no qcow2 disk")
	}

	take(t, out, "libvirt")
}

func TestVirtualBox(t *testing.T) {
	dir := t.TempDir()
	raw, archive, out := disk(t, dir), filepath.Join(dir, "saltern.ova"), filepath.Join(dir, "saltern.box")
	if err := ova.Build(t.Context(),
		ova.Options{
			Out:       archive,
			Raw:       raw,
			Name:      "saltern",
			Version:   "1.2.3",
			CPUs:      2,
			MemoryMiB: 2048,
			Epoch:     epoch,
		}); err != nil {
		t.Fatal(err)
	}

	if err := VirtualBox(out, archive, epoch); err != nil {
		t.Fatal(err)
	}

	names, content := unpack(t, out)
	if want := []string{"metadata.json", "Vagrantfile", "box.ovf", "saltern-disk1.vmdk"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}

	if !strings.Contains(string(content["box.ovf"]), `href="saltern-disk1.vmdk"`) ||
		!strings.Contains(string(content["Vagrantfile"]), "base_mac") {
		t.Errorf("%s\n%s", content["box.ovf"], content["Vagrantfile"])
	}

	take(t, out, "virtualbox")
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	none, empty := filepath.Join(dir, "none"), filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, make([]byte, 1024), 0o600); err != nil {
		t.Fatal(err)
	}

	out := filepath.Join(dir, "out")
	for name, err := range map[string]error{
		"no disk":          Libvirt(out, none, 8, epoch),
		"no archive":       VirtualBox(out, none, epoch),
		"an empty archive": VirtualBox(out, empty, epoch),
	} {
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}

	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("what was refused leaves a file: %v", err)
	}
}
