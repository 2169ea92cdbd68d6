package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/ed25519"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var created = time.Unix(1750000000, 0).UTC()

func make3(t *testing.T, key ed25519.PrivateKey) []byte {
	t.Helper()
	dir := t.TempDir()
	var files []string
	for i, p := range Parts {
		path := filepath.Join(dir, p)
		if err := os.WriteFile(path, bytes.Repeat([]byte{byte('a' + i)}, 1000*(i+1)), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}

	var b bytes.Buffer
	if err := Create(&b,
		Manifest{Version: "1.2.3", Flavour: "cloud", Created: created, Next: created.AddDate(0, 0, 30)},
		files, key); err != nil {
		t.Fatal(err)
	}

	return b.Bytes()
}

func keys(t *testing.T) (ed25519.PrivateKey, ed25519.PublicKey) {
	t.Helper()
	priv, pub, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	k, err1 := PrivateKey(priv)
	p, err2 := publicKey(pub)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return k, p
}

func readAll(b []byte, trusted ...ed25519.PublicKey) error {
	r, err := Open(bytes.NewReader(b), trusted)
	if err != nil {
		return err
	}

	for {
		_, part, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}

		if _, err := io.Copy(io.Discard, part); err != nil {
			return err
		}
	}
}

func TestRoundTrip(t *testing.T) {
	key, pub := keys(t)
	_, other := keys(t)
	b := make3(t, key)
	if err := readAll(b, other, pub); err != nil {
		t.Fatal(err)
	}

	if again := make3(t, key); !bytes.Equal(b, again) {
		t.Error("not the same twice")
	}

	if err := readAll(b, other); !errors.Is(err, errSignature) {
		t.Errorf("a stranger's key: %v", err)
	}

	if err := readAll(b); err == nil {
		t.Error("no key at all was enough")
	}
}

// TestDamage flips every 50th byte: no such bundle may be read to its end.
func TestDamage(t *testing.T) {
	key, pub := keys(t)
	b := make3(t, key)
	for at := 0; at < len(b); at += 50 {
		bad := bytes.Clone(b)
		bad[at] ^= 0x20
		r, err := Open(bytes.NewReader(bad), []ed25519.PublicKey{pub})
		if err != nil {
			continue
		}
		if r.Manifest.Version != "1.2.3" {
			t.Fatalf("byte %d changes the manifest", at)
		}

		for _, want := range Parts {
			p, part, err := r.Next()
			if err != nil {
				break
			}

			got, err := io.ReadAll(part)
			if err != nil {
				break
			}
			if p.Name != want || len(got) != int(p.Size) ||
				bytes.ContainsFunc(got, func(c rune) bool { return c != rune(got[0]) }) || got[0] < 'a' || got[0] > 'c' {
				t.Fatalf("byte %d: %s was read changed", at, want)
			}
		}
	}

	for _, n := range []int{0, 100, 600, 2000, len(b) / 2} {
		if err := readAll(b[:n], pub); err == nil {
			t.Errorf("cut after %d bytes, and nobody saw", n)
		}
	}
}

// TestAttackSwappedParts: parts of another signed bundle, names that are
// paths, and links are refused.
func TestAttackSwappedParts(t *testing.T) {
	key, pub := keys(t)
	b := make3(t, key)
	rewrite := func(change func(*tar.Header)) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		r := tar.NewReader(bytes.NewReader(b))
		for {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}

			content, _ := io.ReadAll(r)
			change(h)
			if h.Typeflag != tar.TypeReg {
				h.Size, content = 0, nil
			}

			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}

			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
		}

		if err := w.Close(); err != nil {
			t.Fatal(err)
		}

		return out.Bytes()
	}

	if err := readAll(rewrite(func(*tar.Header) {}), pub); err != nil {
		t.Fatal(err)
	}

	for name, change := range map[string]func(*tar.Header){
		"path": func(h *tar.Header) { h.Name = strings.Replace(h.Name, "vmlinuz", "../vmlinuz", 1) },
		"link": func(h *tar.Header) {
			if h.Name == "initrd" {
				h.Typeflag, h.Linkname = tar.TypeSymlink, "/etc/shadow"
			}
		},
		"order": func(h *tar.Header) {
			if h.Name == "initrd" {
				h.Name = "root.squashfs"
			}
		},
	} {
		if err := readAll(rewrite(change), pub); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestManifestCheck(t *testing.T) {
	sum := strings.Repeat("00", 32)
	good := func() Manifest {
		return Manifest{Schema: 1, Name: "saltern", Version: "1", Flavour: "cloud", Created: created,
			Parts: []Part{{"vmlinuz", 1, sum}, {"initrd", 1, sum}, {"root.squashfs", 1, sum}}}
	}

	m := good()
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}

	for name, change := range map[string]func(*Manifest){
		"schema": func(m *Manifest) { m.Schema = 2 }, "name": func(m *Manifest) { m.Name = "x" }, "version": func(m *Manifest) { m.Version = "../1" },
		"time": func(m *Manifest) { m.Created = time.Time{} }, "size": func(m *Manifest) { m.Parts[0].Size = -1 }, "huge": func(m *Manifest) { m.Parts[0].Size = 1 << 60 },
		"digest": func(m *Manifest) { m.Parts[0].SHA256 = "00" }, "missing": func(m *Manifest) { m.Parts = m.Parts[:2] },
		"a promise for before": func(m *Manifest) { m.Next = created.Add(-time.Hour) }, "a promise for some day": func(m *Manifest) { m.Next = created.AddDate(2, 0, 0) },
	} {
		m := good()
		change(&m)
		if m.Check() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func FuzzOpen(f *testing.F) {
	_, key, _ := ed25519.GenerateKey(nil)
	f.Add([]byte("manifest.json"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := readAll(b, key.Public().(ed25519.PublicKey)); err == nil {
			t.Error("a bundle without a signature was read")
		}
	})
}
