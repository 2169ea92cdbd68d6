package secrets

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// place is an empty keyring of a cluster.
func place(t testing.TB) Place {
	t.Helper()
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("NOT TESTED: there is no gpg")
	}
	dir := short(t)
	if err := os.Mkdir(dir+"/run", 0o700); err != nil {
		t.Fatal(err)
	}
	return Place{Shared: dir + "/keys", Node: dir + "/keys", Run: dir + "/run", UID: os.Getuid(), GID: os.Getgid()}
}

// short is a temporary folder with a short name: a socket's path holds 107 bytes.
func short(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// administrator has a keyring elsewhere.
type administrator struct {
	t    *testing.T
	home string
}

func newAdministrator(t *testing.T) administrator {
	a := administrator{t, short(t)}
	t.Cleanup(func() { _ = exec.Command("gpgconf", "--homedir", a.home, "--kill", "all").Run() })
	return a
}

func (a administrator) gpg(args ...string) string {
	a.t.Helper()
	cmd := exec.Command("gpg",
		append([]string{"--homedir", a.home, "--batch", "--quiet", "--pinentry-mode", "loopback"}, args...)...)
	var out, fault bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &fault
	if err := cmd.Run(); err != nil {
		a.t.Fatalf("gpg %v: %v: %s", args, err, &fault)
	}
	return out.String()
}

func (a administrator) key(user, phrase, algo, use, expire string) {
	a.t.Helper()
	a.gpg("--passphrase", phrase, "--quick-gen-key", user, algo, use, expire)
}

// decrypt opens a message as a master does: with the node's keyring.
func decrypt(t *testing.T, p Place, message string) string {
	t.Helper()
	cmd := exec.Command("gpg", "--homedir", p.Node, "--no-tty", "-d")
	cmd.Stdin = strings.NewReader(message)
	out, err := cmd.Output()
	_ = exec.Command("gpgconf", "--homedir", p.Node, "--kill", "all").Run()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// A key goes in as the administrator's gpg exports it, and what is encrypted with
// its public half is opened by the masters' keyring.
func TestImportAndEncrypt(t *testing.T) {
	p, a, ctx := place(t), newAdministrator(t), t.Context()
	if keys, err := p.List(ctx); err != nil || len(keys) != 0 {
		t.Fatalf("before: %v %v", keys, err)
	}

	if _, _, err := p.Encrypt(ctx, "", "x"); err == nil || !strings.Contains(err.Error(), "no key") {
		t.Errorf("without a key: %v", err)
	}

	a.key("one: <one@example.com>", "", "future-default", "default", "never")
	keys, err := p.Import(ctx, a.gpg("--export-secret-keys", "one@"))
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != 1 || keys[0].State != Ready ||
		!slices.Equal(keys[0].Users, []string{"one: <one@example.com>"}) || keys[0].Expires != nil {
		t.Fatalf("%+v", keys)
	}

	_, message, err := p.Encrypt(ctx, "", "the value\n")
	if err != nil {
		t.Fatal(err)
	}

	if got := decrypt(t, p, message); got != "the value\n" {
		t.Errorf("%q", got)
	}

	a.key("two <two@example.com>", "", "future-default", "default", "never")
	if _, err := p.Import(ctx, a.gpg("--armor", "--export-secret-keys", "two@")); err != nil {
		t.Fatal(err)
	}

	keys, err = p.List(ctx)
	if err != nil || len(keys) != 2 || keys[1].State != Ready || !keys[1].Here {
		t.Fatalf("%+v %v", keys, err)
	}

	if _, _, err := p.Encrypt(ctx, "", "x"); err != ErrWhich {
		t.Errorf("two keys: %v", err)
	}

	for _, name := range []string{"two@example", keys[1].Fingerprint, strings.ToLower(keys[1].Fingerprint[24:])} {
		k, message, err := p.Encrypt(ctx, name, "x")
		if err != nil || k.Fingerprint != keys[1].Fingerprint || decrypt(t, p, message) != "x" {
			t.Errorf("key %s: %+v %v", name, k, err)
		}
	}

	if _, _, err := p.Encrypt(ctx, "three", "x"); err == nil {
		t.Error("a key that is not there")
	}

	if k, err := p.Remove(ctx, "two@"); err != nil || k.Fingerprint != keys[1].Fingerprint {
		t.Errorf("remove: %+v %v", k, err)
	}

	if left, _ := os.ReadDir(filepath.Join(p.Shared, privateKeys)); len(left) != 2 {
		t.Errorf("private keys of one key: %v", left)
	}

	if keys, err := p.List(ctx); err != nil || len(keys) != 1 || keys[0].State != Ready {
		t.Errorf("after the removal: %+v %v", keys, err)
	}

	_, public, err := p.Public(ctx, "one@")
	if err != nil || !strings.HasPrefix(public, "-----BEGIN PGP PUBLIC KEY BLOCK-----") {
		t.Errorf("%s %v", public, err)
	}

	p.clean(t)
}

// clean checks that nothing but the keyring is left, and for its owner alone.
func (p Place) clean(t *testing.T) {
	t.Helper()
	if left, _ := os.ReadDir(p.Run); len(left) > 0 {
		t.Errorf("left in memory: %v", left)
	}

	if fi, err := os.Stat(p.Shared); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", fi, err)
	}

	for _, dir := range []string{"", privateKeys} {
		entries, _ := os.ReadDir(filepath.Join(p.Shared, dir))
		for _, e := range entries {
			if fi, err := e.Info(); err != nil || fi.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %v %v", e.Name(), fi.Mode(), err)
			}
		}
	}
}

// What a master could not use by itself is refused in words, and changes nothing.
func TestImportRefuses(t *testing.T) {
	p, a := place(t), newAdministrator(t)
	a.key("locked <locked@x>", "a passphrase", "future-default", "default", "never")
	a.key("signer <signer@x>", "", "ed25519", "sign", "never")
	a.key("half <half@x>", "", "future-default", "default", "never")

	for _, c := range []struct{ name, export, want string }{
		{"passphrase", a.gpg("--passphrase", "a passphrase", "--export-secret-keys", "locked@"), "has a passphrase"},
		{"signing only", a.gpg("--export-secret-keys", "signer@"), "is not for encryption"},
		{"public", a.gpg("--export", "half@"), "only public keys"},
		{"text", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nno key\n-----END PGP PRIVATE KEY BLOCK-----\n",
			"no key in it"},
		{"nothing", "", "no key in it"},
	} {
		if _, err := p.Import(t.Context(), c.export); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}

	if keys, err := p.List(t.Context()); err != nil || len(keys) != 0 {
		t.Errorf("left: %+v %v", keys, err)
	}

	p.clean(t)
}

// Administrators on two nodes may import at the same moment.
func TestImportsAtOnce(t *testing.T) {
	p, a := place(t), newAdministrator(t)
	other := p
	other.Run = short(t)
	var exports []string
	for _, u := range []string{"a@x", "b@x", "c@x", "d@x"} {
		a.key(u, "", "future-default", "default", "never")
		exports = append(exports, a.gpg("--export-secret-keys", u))
	}

	var wg sync.WaitGroup
	for i, e := range exports {
		wg.Go(func() {
			if _, err := []Place{p, other}[i%2].Import(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()
	keys, err := p.List(t.Context())
	if err != nil || len(keys) != len(exports) {
		t.Fatalf("%+v %v", keys, err)
	}

	for _, k := range keys {
		if k.State != Ready {
			t.Errorf("%+v", k)
		}
	}

	p.clean(t)
}

// An old key opens what is there; nothing new is encrypted with it.
func TestExpiredKey(t *testing.T) {
	p, a := place(t), newAdministrator(t)
	a.gpg("--passphrase", "", "--faked-system-time", "20200101T000000", "--quick-gen-key", "old@x",
		"rsa2048", "default", "1y")

	// gpg gives no subkey to quick-gen-key with an algorithm of its own.
	fpr := strings.Split(strings.SplitN(a.gpg("--with-colons", "--list-keys"), "\nfpr", 2)[1], ":")[9]
	a.gpg("--passphrase", "", "--faked-system-time", "20200101T000000", "--quick-add-key", fpr, "rsa2048", "encr", "1y")
	keys, err := p.Import(t.Context(), a.gpg("--export-secret-keys", fpr))
	if err != nil || len(keys) != 1 || keys[0].State != Expired || keys[0].Expires == nil ||
		keys[0].Expires.Year() != 2020 {
		t.Fatalf("%+v %v", keys, err)
	}

	if _, _, err := p.Encrypt(t.Context(), "old@x", "v"); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("%v", err)
	}
}

// The master's account may write into the keyring. Root follows none of its links.
func TestLinksInKeyring(t *testing.T) {
	p, a := place(t), newAdministrator(t)
	if err := os.Mkdir(p.Shared, 0o700); err != nil {
		t.Fatal(err)
	}

	outside := short(t)
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{".lock", "pubring.kbx", privateKeys} {
		to := victim
		if name == privateKeys {
			to = outside
		}
		if err := os.Symlink(to, filepath.Join(p.Shared, name)); err != nil {
			t.Fatal(err)
		}
	}

	a.key("a@x", "", "future-default", "default", "never")
	export := a.gpg("--export-secret-keys")
	if _, err := p.Import(t.Context(), export); err == nil {
		t.Error("a lock that is a link")
	}

	_ = os.Remove(filepath.Join(p.Shared, ".lock"))
	if _, err := p.Import(t.Context(), export); err == nil {
		t.Error("a folder that is a link")
	}

	if b, _ := os.ReadFile(victim); string(b) != "untouched" {
		t.Errorf("%q", b)
	}

	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("%v", entries)
	}
}

func TestPart(t *testing.T) {
	for rel, want := range map[string]bool{
		"pubring.kbx": true, privateKeys: true, privateKeys + "/AB.key": true, "gpg.conf": true,
		"S.gpg-agent": false, "pubring.kbx.lock": false, ".#lk0x1.host.3": false, "random_seed": false, "trustdb.gpg": false,
		privateKeys + "/.AB.key": false, privateKeys +
			"/x/AB.key": false, "x/pubring.kbx": false, "": false, ".lock": false, "pubring.kbx~": false,
	} {
		if Part(rel) != want {
			t.Errorf("%q: %v", rel, !want)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add("pub:u:255:22:0011223344556677:1600000000:1700000000::-:::scESC::::::23::0:\nfpr:::::::::00112233445566778899AABBCCDDEEFF00112233:\nuid:u::::1::X::a\\x3ab <c@d>::::::::::0:\nsub:u:255:18:0:1::::::e::::::23:\ngrp:::::::::00112233445566778899AABBCCDDEEFF00112233:\n")
	f.Add("pub:r:\nsub::::::::::e\nfpr:::::::::x")
	f.Fuzz(func(t *testing.T, text string) {
		for _, k := range parseKeys(text) {
			if !isHex(k.Fingerprint) || len(k.Users) > 16 || k.State == "" {
				t.Errorf("%+v", k)
			}
		}
		imported(text)
	})
}
