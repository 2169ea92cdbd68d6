package adopt

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAttack65Tree: a tree whose names, links, sizes and kinds of files want more than to
// be imported. Nothing of what is outside comes along, and nothing is written outside.
func TestAttack65Tree(t *testing.T) {
	const secret = "SECRET-OF-THIS-MACHINE"
	old, s := oldMaster(t), freshNode(t)
	outside := t.TempDir()
	write(t, outside, map[string]string{"file": secret, "dir/file": secret, "key": public(t, 2)})
	minions := "etc/salt/pki/master/minions/"
	for link, to := range map[string]string{
		minions + "by-link": outside + "/key", minions + "up": "../../../../../../../../../../.." + outside + "/key",
		"srv/states/file": outside + "/file", "srv/states/dir": outside + "/dir", "srv/states/self": "self",
		"etc/salt/master.d/z.conf": outside + "/file", "srv/pillar/out.sls": outside + "/file",
	} {
		if err := os.Symlink(to, filepath.Join(old, link)); err != nil {
			t.Fatal(err)
		}
	}

	write(t, old, map[string]string{
		minions + "..evil": public(t, 4), minions + "new\nline": public(t, 4), minions + ".pem": public(t, 4),
		minions + "huge": strings.Repeat("A", maxKeyFile+
			1), minions + "the-master": private(t, 0, ""), minions + "pipe-is-next": "",
		"etc/salt/pki/master/minions_pre/folder/x": public(t, 4),
	})

	if err := syscall.Mkfifo(filepath.Join(old, minions, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := syscall.Mkfifo(filepath.Join(old, "srv/states/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}

	p := look(t, old, Request{Settings: s, Force: true})
	apply(t, p, "attack")
	for _, name := range names(t, s.Storage.Path) {
		b, err := os.ReadFile(filepath.Join(s.Storage.Path, name))
		fi, lerr := os.Lstat(filepath.Join(s.Storage.Path, name))
		link := lerr == nil && fi.Mode()&os.ModeSymlink != 0
		if err != nil || lerr != nil || bytes.Contains(b, []byte(secret)) ||
			!fi.Mode().IsRegular() && !link || link && !strings.HasPrefix(name, "pki/master.") {
			t.Errorf("%q was imported: %v %v", name, err, lerr)
		}

		if dir, id := filepath.Split(name); dir == "pki/minions/" && id != "web1" {
			t.Errorf("%q has a key", id)
		}
	}

	if left := counts(p)[Accepted][3]; left < 8 {
		t.Errorf("%d keys are named as left out", left)
	}

	if got := names(t, outside); len(got) != 3 {
		t.Errorf("outside there is now %v", got)
	}
}

// TestAttack65Archive: the same by an archive on standard input.
func TestAttack65Archive(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{"../out", "a/../../out", "/../out", "a\x00b",
		strings.Repeat("d/", maxDepth+200) + "x", "etc/salt/" + strings.Repeat("n", 300)} {
		dir := filepath.Join(top, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}

		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}

		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 1, Mode: 0o4777}); err == nil {
			_, _ = w.Write([]byte("x"))
			notes, err := Unpack(t.Context(), bytes.NewReader(append(b.Bytes(), make([]byte, 2048)...)), root, Limits{})
			if got := names(t, top); len(got) > 0 || err == nil && len(notes) == 0 {
				t.Errorf("%.40q: %.80q, %v", name, got, err)
			}
		}

		_ = root.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}
