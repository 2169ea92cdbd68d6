package storage

import (
	"net"
	"os"
	"path/filepath"
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
	for name, mode := range map[string]os.FileMode{"": 0o700, "pubring.kbx": 0o600, "private-keys-v1.d": 0o700, private: 0o600} {
		fi, err := os.Stat(filepath.Join(to, name))
		if err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%q: %v %v", name, fi, err)
			continue
		}
		if uid, gid, _ := owner(fi); uid != wanted.UID || gid != wanted.GID {
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
