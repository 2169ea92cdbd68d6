package vhd

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBuild: qemu-img reads the disk with its size and its bytes; zeros take no room,
// and a second time gives the same.
func TestBuild(t *testing.T) {
	dir := t.TempDir()
	raw, out, again := filepath.Join(dir, "raw"), filepath.Join(dir, "a.vhd"), filepath.Join(dir, "b.vhd")
	const size = 513 * mib // no multiple of a cylinder
	f, err := os.Create(raw)
	if err != nil {
		t.Fatal(err)
	}

	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}

	for _, at := range []int64{0, 100*mib + 5, size - 4} {
		if _, err := f.WriteAt([]byte("data"), at); err != nil {
			t.Fatal(err)
		}
	}

	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	for _, o := range []string{out, again} {
		if err := Build(o, raw, "saltern 1.2.3", time.Unix(1750000000, 0)); err != nil {
			t.Fatal(err)
		}
	}

	fi, err := os.Stat(out)
	if err != nil || fi.Size() != size+footerSize {
		t.Fatalf("%d bytes, %v", fi.Size(), err)
	}

	var tails [2][]byte
	for i, o := range []string{out, again} {
		f, err := os.Open(o)
		if err != nil {
			t.Fatal(err)
		}

		tails[i] = make([]byte, footerSize)
		if _, err := f.ReadAt(tails[i], size); err != nil {
			t.Fatal(err)
		}

		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}

	if !bytes.Equal(tails[0], tails[1]) {
		t.Error("two footers of the same disk differ")
	}

	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("NOT TESTED: qemu-img is not installed")
	}

	text, err := exec.Command("qemu-img", "info", "--output=json", "-f", "vpc", out).Output()
	if err != nil {
		t.Fatalf("qemu-img info: %v", err)
	}

	var info struct {
		Format string `json:"format"`
		Size   int64  `json:"virtual-size"`
		Actual int64  `json:"actual-size"`
	}

	if err := json.Unmarshal(text, &info); err != nil || info.Format != "vpc" || info.Size != size ||
		info.Actual > 16*mib {
		t.Errorf("qemu-img info: %s %v", text, err)
	}

	if text, err := exec.Command("qemu-img", "compare", "-f", "raw", "-F", "vpc", raw, out).CombinedOutput(); err != nil {
		t.Errorf("qemu-img compare: %v: %s", err, text)
	}
}

// TestGeometry: values of the specification's formula.
func TestGeometry(t *testing.T) {
	for size, want := range map[int64][3]int64{
		mib:       {30, 4, 17},
		513 * mib: {1042, 16, 63},
		8 << 30:   {16644, 16, 63},
		127 << 30: {65278, 16, 255},
		4 << 40:   {65535, 16, 255},
	} {
		if c, h, s := geometry(size); [3]int64{c, h, s} != want {
			t.Errorf("%d: %d %d %d, want %v", size, c, h, s, want)
		}
	}
}

func TestRefused(t *testing.T) {
	raw := filepath.Join(t.TempDir(), "raw")
	if err := os.WriteFile(raw, make([]byte, mib+512), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Build(raw+".vhd", raw, "x", time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), "MiB") {
		t.Errorf("a disk that is not aligned: %v", err)
	}
	if err := Build(raw+".vhd", raw+"x", "x", time.Unix(0, 0)); err == nil {
		t.Error("no disk was taken")
	}
	if _, err := os.Stat(raw + ".vhd.part"); !os.IsNotExist(err) {
		t.Errorf("what was refused leaves a file: %v", err)
	}
}
