package sums

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"saltern/image/bundle"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func in(dir string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestVerify: sha256sum and openssl accept what was written with a key as
// saltern-image keygen makes it, and refuse it when a file, a digest or the key is
// another.
func TestVerify(t *testing.T) {
	for _, p := range []string{"sha256sum", "openssl"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("NOT TESTED: %s is missing: apt-get install coreutils openssl", p)
		}
	}

	private, public, err := bundle.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}

	key, err := bundle.PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	_, other, err := bundle.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}

	keys, dir := t.TempDir(), t.TempDir()
	write(t, keys, "key.pem", string(public))
	write(t, keys, "other.pem", string(other))
	write(t, dir, "saltern-1.2.3~rc.1_amd64.deb", "one")
	write(t, dir, "RELEASE-NOTES.md", "two")

	for range 2 { // the second time over the first
		if err := Write(dir, key); err != nil {
			t.Fatal(err)
		}
	}

	verify := func(pem string) (string, error) {
		return in(dir, "openssl", "pkeyutl", "-verify", "-pubin", "-inkey", filepath.Join(keys, pem),
			"-rawin", "-in", Name, "-sigfile", Signature)
	}

	if out, err := in(dir, "sha256sum", "--strict", "-c", Name); err != nil || strings.Count(out, ": OK\n") != 2 {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}

	if out, err := verify("key.pem"); err != nil || !strings.Contains(out, "Signature Verified Successfully") {
		t.Errorf("openssl: %v\n%s", err, out)
	}

	if out, err := verify("other.pem"); err == nil {
		t.Errorf("another key is taken: %s", out)
	}

	write(t, dir, "RELEASE-NOTES.md", "twa")
	if out, err := in(dir, "sha256sum", "--strict", "-c", Name); err == nil {
		t.Errorf("a changed file is taken: %s", out)
	}

	text, err := os.ReadFile(filepath.Join(dir, Name))
	if err != nil {
		t.Fatal(err)
	}

	write(t, dir, Name, strings.Replace(string(text), "a", "b", 1))
	if out, err := verify("key.pem"); err == nil {
		t.Errorf("changed digests are taken: %s", out)
	}

	if err := Write(dir, nil); err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(filepath.Join(dir, Signature)); !os.IsNotExist(err) {
		t.Errorf("the signature of other digests is there: %v", err)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	if err := Write(dir, nil); err == nil {
		t.Error("an empty folder has digests")
	}

	if err := os.Mkdir(filepath.Join(dir, "oci"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := Write(dir, nil); err == nil || !strings.Contains(err.Error(), `"oci"`) {
		t.Errorf("a folder in it: %v", err)
	}

	spaced := t.TempDir()
	write(t, spaced, "a b", "")
	if err := Write(spaced, nil); err == nil || !strings.Contains(err.Error(), `"a b"`) {
		t.Errorf("a name with a space: %v", err)
	}
}
