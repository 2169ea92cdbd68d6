package ova

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func build(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("SKIPPED: needs qemu-img (apt-get install qemu-utils)")
	}
	dir := t.TempDir()
	raw := filepath.Join(dir, "raw")
	content := bytes.Repeat([]byte("saltern "), 100<<10)
	if err := os.WriteFile(raw, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(raw, 4<<20); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "x.ova")
	o := Options{Out: out, Raw: raw, Name: "saltern", Version: "1.0", CPUs: 2, MemoryMiB: 2048, Epoch: time.Unix(1750000000, 0)}
	if err := Build(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	return out
}

// The content number of a disk may have fewer than eight digits.
func TestFixID(t *testing.T) {
	const want = "# Disk DescriptorFile\nversion=1\nCID=5a17e2d0\nparentCID=ffffffff\n"
	for _, id := range []string{"1", "fe1c3a9", "0fe1c3a9", "ffffffff"} {
		path := filepath.Join(t.TempDir(), "disk")
		text := "# Disk DescriptorFile\nversion=1\nCID=" + id + "\nparentCID=ffffffff\n"
		disk := append(append([]byte(text), make([]byte, 1024-len(text))...), "data"...)
		if err := os.WriteFile(path, disk, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := fixID(path); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		got, err := os.ReadFile(path)
		if err != nil || len(got) != len(disk) || string(bytes.TrimRight(got[:1024], "\x00")) != want || string(got[1024:]) != "data" {
			t.Errorf("%s: %q, %v", id, got, err)
		}
	}
	full := filepath.Join(t.TempDir(), "full")
	if err := os.WriteFile(full, []byte("\nCID=1\nx\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := fixID(full); err == nil {
		t.Error("written over what follows the descriptor")
	}
}

// TestOVA: what is packed can be deployed, is the same twice, and qemu-img
// reads the very disk back from it.
func TestOVA(t *testing.T) {
	a, b := build(t), build(t)
	one, err1 := os.ReadFile(a)
	two, err2 := os.ReadFile(b)
	if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
		t.Errorf("not the same twice (%v %v)", err1, err2)
	}
	c, err := Verify(bytes.NewReader(one))
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "saltern" || c.Capacity != 4<<20 || len(c.Properties) != len(Properties) {
		t.Errorf("%+v", c)
	}
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xf", a, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	raw := filepath.Join(dir, "back")
	if out, err := exec.Command("qemu-img", "convert", "-f", "vmdk", "-O", "raw", filepath.Join(dir, c.Disk), raw).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	got, err1 := os.ReadFile(raw)
	want, err2 := os.ReadFile(filepath.Join(filepath.Dir(a), "raw"))
	if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
		t.Error("the disk came back changed")
	}
	bad := bytes.Clone(one)
	bad[len(bad)-4096] ^= 1
	if _, err := Verify(bytes.NewReader(bad)); err == nil {
		t.Error("a damaged archive was taken")
	}
}

// TestDescriptor: names cannot break out of the XML, and secrets are marked.
func TestDescriptor(t *testing.T) {
	b, err := machine{Name: `a"<b>&`, Disk: "d", Properties: Properties}.descriptor()
	if err != nil || strings.Contains(string(b), `a"<b>`) {
		t.Errorf("%v %s", err, b)
	}
	for _, p := range Properties {
		if (p.Key == "saltern.secret" || p.Key == "saltern.join" || p.Key == "saltern.answers") != p.Secret {
			t.Errorf("%s: secret %v", p.Key, p.Secret)
		}
	}
}
