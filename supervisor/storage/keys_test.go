package storage

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"saltern/supervisor/secrets"
)

// A node has the keyring as gpg takes it, whatever its modes on the volume; what
// gpg makes in the copy stays, and what goes from the volume goes from the node.
func TestKeyringIsCopied(t *testing.T) {
	c, src, dst := testCopier(t)
	wanted := &account{os.Getuid(), os.Getgid()}
	if wanted.UID == 0 {
		wanted = &account{12345, 12346}
	}

	c.spec.Keys = wanted
	from, to := filepath.Join(src, secrets.Dir), filepath.Join(dst, secrets.Dir)
	private := filepath.Join("private-keys-v1.d", "AB.key")
	put(t, filepath.Join(from, "pubring.kbx"), "public")
	put(t, filepath.Join(from, private), "private")

	for _, own := range []string{"pubring.kbx.lock", ".lock", "random_seed"} {
		put(t, filepath.Join(from, own), "of another node")
	}

	if r := pass(t, c); r.Copied != 2 {
		t.Errorf("%+v", r)
	}

	for name, mode := range map[string]os.FileMode{
		"":                  0o700,
		"pubring.kbx":       0o600,
		"private-keys-v1.d": 0o700,
		private:             0o600,
	} {
		fi, err := os.Stat(filepath.Join(to, name))
		if err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%q: %v %v", name, fi, err)
			continue
		}

		if uid, gid, _ := fileOwner(fi); uid != wanted.UID || gid != wanted.GID {
			t.Errorf("%q belongs to %d:%d", name, uid, gid)
		}
	}

	put(t, filepath.Join(to, "trustdb.gpg"), "made by gpg")
	t.Chdir(to) // a socket's path holds 107 bytes
	l, err := net.Listen("unix", "S.gpg-agent")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	put(t, filepath.Join(to, "private-keys-v1.d", ".#lk0x1.n.7"), "a lock")
	if r := pass(t, c); r.Copied+r.Removed != 0 {
		t.Errorf("a pass over an equal keyring: %+v", r)
	}

	if err := os.Remove(filepath.Join(from, private)); err != nil {
		t.Fatal(err)
	}

	pass(t, c)
	if exists(filepath.Join(to, private)) {
		t.Error("a key that was taken away is still on the node")
	}

	for _, name := range []string{"trustdb.gpg", "S.gpg-agent", "private-keys-v1.d/.#lk0x1.n.7"} {
		if _, err := os.Lstat(filepath.Join(to, name)); err != nil {
			t.Error(err)
		}
	}

	// A volume of before has no keyring; then no node has a key.
	if err := os.RemoveAll(from); err != nil {
		t.Fatal(err)
	}

	pass(t, c)
	if exists(filepath.Join(to, "pubring.kbx")) {
		t.Error("the keyring is gone, and its keys are on the node")
	}

	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}

	pass(t, c)
}

// The master's account, and not root, opens a secret with the node's copy while
// passes go on, and gpg's own files stay off the volume.
func TestMasterOpensSecretsWithCopy(t *testing.T) {
	if _, err := exec.LookPath("gpg"); err != nil || os.Geteuid() != 0 {
		t.Skip("NOT TESTED: gpg and root are needed")
	}

	dir, err := os.MkdirTemp("", "k") // short, and open to others
	if err != nil {
		t.Fatal(err)
	}

	src, dst, admin := dir+"/volume", dir+"/copy", dir+"/admin"
	nobody := &account{65534, 65534}
	gpg := func(who *account, in string, args ...string) string {
		t.Helper()
		cmd := exec.Command("gpg", append([]string{"--batch", "--quiet", "--trust-model", "always"}, args...)...)
		cmd.Dir, cmd.Stdin, cmd.Env = "/", strings.NewReader(in), []string{"PATH=" + os.Getenv("PATH"),
			"HOME=/nonexistent"}

		if who != nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
				Uid: uint32(who.UID),
				Gid: uint32(who.GID),
			}}
		}

		var fault strings.Builder
		cmd.Stderr = &fault
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("gpg %v: %v: %s", args, err, &fault)
		}

		return string(out)
	}

	home := filepath.Join(dst, secrets.Dir)
	t.Cleanup(func() {
		for _, h := range []string{admin, home} {
			_ = exec.Command("gpgconf", "--homedir", h, "--kill", "all").Run()
		}
		_ = os.RemoveAll(dir)
	})

	for d, mode := range map[string]os.FileMode{dir: 0o755, admin: 0o700, src: 0o755} {
		if err := errors.Join(os.MkdirAll(d, mode), os.Chmod(d, mode)); err != nil {
			t.Fatal(err)
		}
	}

	for _, tree := range mirroredTrees() {
		if err := os.MkdirAll(filepath.Join(src, tree), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	gpg(nil, "", "--homedir", admin, "--passphrase", "", "--quick-gen-key", "m@x", "future-default", "default", "never")
	p := secrets.Place{Shared: filepath.Join(src, secrets.Dir), Node: home}
	if _, err := p.Import(t.Context(), gpg(nil, "", "--homedir", admin, "--export-secret-keys")); err != nil {
		t.Fatal(err)
	}

	c := newCopier(mirrorSpec{Source: src, Dest: dst, Trees: mirroredTrees(), Any: true, Keys: nobody})
	before, _ := filepath.Glob(filepath.Join(src, secrets.Dir, "*"))
	for range 3 {
		r := pass(t, c)
		if r.Removed > 0 {
			t.Errorf("%+v", r)
		}

		_, message, err := p.Encrypt(t.Context(), "", "hidden")
		if err != nil {
			t.Fatal(err)
		}

		if got := gpg(nobody, message, "--homedir", home, "--decrypt"); got != "hidden" {
			t.Errorf("%q", got)
		}
	}

	if r := pass(t, c); r.Copied+r.Removed > 0 {
		t.Errorf("gpg changes its keys, and the mirror repairs them each time: %+v", r)
	}

	if after, _ := filepath.Glob(filepath.Join(src, secrets.Dir, "*")); !slices.Equal(before, after) {
		t.Errorf("on the volume: %v, before %v", after, before)
	}

	if keys, err := p.List(t.Context()); err != nil || len(keys) != 1 || !keys[0].Here {
		t.Errorf("%+v %v", keys, err)
	}
}
