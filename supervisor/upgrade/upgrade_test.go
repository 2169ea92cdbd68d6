package upgrade

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/image/bundle"
	"saltern/image/grubenv"
)

// machine makes a System of plain files.
func machine(t *testing.T, cmdline string, env grubenv.Env) *System {
	t.Helper()
	dir := t.TempDir()
	b, err := env.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	for p, text := range map[string][]byte{
		"esp/grub/grubenv": b, "esp/a/version": []byte("1\n"), "esp/b/.keep": nil, "dev/root-a": make([]byte, 1<<20), "dev/root-b": make([]byte, 1<<20),
		"cmdline": []byte("quiet " + cmdline + "\n"), "os-release": []byte("ID=debian\nVARIANT_ID=cloud\n"),
	} {
		full := filepath.Join(dir, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return &System{
		ESP:     dir + "/esp",
		Devices: dir + "/dev",
		Cmdline: dir + "/cmdline",
		Release: dir + "/os-release",
		Data:    dir,
		Sysfs:   dir + "/sys",
	}
}

func version(t *testing.T, flavour string) ([]byte, ed25519.PublicKey) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	var files []string
	for i, p := range bundle.Parts {
		files = append(files, filepath.Join(dir, p))
		if err := os.WriteFile(files[i], bytes.Repeat([]byte(p), 5000), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var b bytes.Buffer
	if err := bundle.Create(&b,
		bundle.Manifest{Version: "2", Flavour: flavour, Created: time.Unix(1750000000, 0)}, files, key); err != nil {
		t.Fatal(err)
	}

	return b.Bytes(), pub
}

func env(t *testing.T, s *System) grubenv.Env {
	t.Helper()
	e, err := grubenv.Load(s.env())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestInstallThenGood(t *testing.T) {
	s := machine(t, "saltern.slot=a", grubenv.Env{"slot": "a"})
	b, key := version(t, "cloud")
	m, err := s.Install(t.Context(), bytes.NewReader(b), []ed25519.PublicKey{key}, func(string) {})
	if err != nil || m.Version != "2" {
		t.Fatalf("%+v %v", m, err)
	}

	if e := env(t, s); e["slot"] != "a" || e["next"] != "b" || e["tries"] != tries {
		t.Errorf("%v", e)
	}

	root, err := os.ReadFile(s.Devices + "/root-b")
	if err != nil || len(root) != 1<<20 || !bytes.HasPrefix(root, bytes.Repeat([]byte("root.squashfs"), 5000)) {
		t.Errorf("root-b: %d bytes %v", len(root), err)
	}

	// The boot loader has booted it.
	if err := os.WriteFile(s.Cmdline, []byte("saltern.slot=b saltern.try"), 0o600); err != nil {
		t.Fatal(err)
	}

	st, err := s.Status()
	if err != nil || !st.Trying || st.Running != "b" || st.Versions["b"] != "2" ||
		!st.Built["b"].Equal(m.Created) || !st.Built["a"].IsZero() || st.Flavour != "cloud" {
		t.Errorf("%+v %v", st, err)
	}

	if _, err := s.Install(t.Context(), bytes.NewReader(b), []ed25519.PublicKey{key}, func(string) {}); err == nil {
		t.Error("a version that is being tried installed another over the good one")
	}

	if err := s.Good(); err != nil {
		t.Fatal(err)
	}

	if e := env(t, s); e["slot"] != "b" || e["next"] != "" || e["tries"] != "" {
		t.Errorf("%v", e)
	}

	if st, err := s.Status(); err != nil || st.Trying {
		t.Errorf("marked good and still on trial: %+v %v", st, err)
	}

	if err := s.Back(); err != nil || env(t, s)["slot"] != "a" {
		t.Errorf("back: %v %v", err, env(t, s))
	}
}

// TestOneInstallationAtATime: while a version is written, another installation, and the selection of
// another version, are refused. Each would spoil what the first one has prepared.
func TestOneInstallationAtATime(t *testing.T) {
	s := machine(t, "saltern.slot=a", grubenv.Env{"slot": "a"})
	b, key := version(t, "cloud")
	keys := []ed25519.PublicKey{key}
	arriving, rest := io.Pipe()
	writing := make(chan struct{})
	begun := sync.OnceFunc(func() { close(writing) })
	ended := make(chan error, 1)
	go func() {
		_, err := s.Install(t.Context(), arriving, keys, func(string) { begun() })
		ended <- err
	}()

	half := len(b) / 2
	if _, err := rest.Write(b[:half]); err != nil {
		t.Fatal(err)
	}
	<-writing

	_, second := s.Install(t.Context(), bytes.NewReader(b), keys, func(string) {})
	for what, err := range map[string]error{"install": second, "back": s.Back(), "confirm": s.Good()} {
		if !errors.Is(err, errBusy) {
			t.Errorf("%s beside an installation: %v", what, err)
		}
	}

	go func() {
		_, _ = rest.Write(b[half:])
		_ = rest.Close()
	}()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if e := env(t, s); e["slot"] != "a" || e["next"] != "b" {
		t.Errorf("%v", e)
	}
}

// TestInstallStops: whatever goes wrong, nothing is tried at the next boot.
func TestInstallStops(t *testing.T) {
	good, key := version(t, "cloud")
	other, otherKey := version(t, "generic")
	damaged := bytes.Clone(good)
	damaged[len(damaged)-5000] ^= 1

	for name, c := range map[string]struct {
		b    []byte
		keys []ed25519.PublicKey
	}{
		"stranger": {good, []ed25519.PublicKey{otherKey}}, "no key": {good, nil}, "other kernel": {other, []ed25519.PublicKey{otherKey}},
		"damaged": {damaged, []ed25519.PublicKey{key}}, "cut": {good[:len(good)/2], []ed25519.PublicKey{key}}, "empty": {nil, []ed25519.PublicKey{key}},
	} {
		s := machine(t, "saltern.slot=a", grubenv.Env{"slot": "a"})
		if _, err := s.Install(t.Context(), bytes.NewReader(c.b), c.keys, func(string) {}); err == nil {
			t.Errorf("%s: installed", name)
		}
		if e := env(t, s); e["slot"] != "a" || e["next"] != "" {
			t.Errorf("%s: %v", name, e)
		}
	}

	s := machine(t, "root=/dev/sda1", grubenv.Env{"slot": "a"})
	if _, err := s.Status(); !errors.Is(err, ErrNoSlots) {
		t.Errorf("another machine: %v", err)
	}
}

func TestConfirm(t *testing.T) {
	for name, c := range map[string]struct {
		well func(int) bool
		want error
		slot string
	}{
		"at once":    {func(int) bool { return true }, nil, "b"},
		"later":      {func(n int) bool { return n > 20 }, nil, "b"},
		"never":      {func(int) bool { return false }, ErrNotWell, "a"},
		"on, off":    {func(n int) bool { return n%10 != 0 }, ErrNotWell, "a"},
		"in the end": {func(n int) bool { return n > 115 }, ErrNotWell, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := machine(t, "saltern.slot=b saltern.try", grubenv.Env{"slot": "a", "next": "b", "tries": "1"})
			synctest.Test(t, func(t *testing.T) {
				n := 0
				err := s.Confirm(t.Context(), func(context.Context) bool { n++; return c.well(n) },
					5*time.Second, 2*time.Minute, 10*time.Minute)
				if !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
			})

			if got := env(t, s)["slot"]; got != c.slot {
				t.Errorf("slot %s, want %s", got, c.slot)
			}
		})
	}
}
