package keys_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"saltern/master/keys"
	"saltern/test/check"
)

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	check.Must(t, os.WriteFile(path, []byte(text), 0o600))
	check.Must(t, os.Chmod(path, mode))
}

func TestAutosignFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "autosign.conf")
	write(t, file,
		"# comment\n\nexact.example\n  spaced  \nweb*\ndb[0-9].x\nq?\nr\\d+\nalpha|beta\n(unclosed\n[open\nn[!a]z\n#hash\n",
		0o600)
	a := keys.NewAutosign(keys.AutosignConfig{AutosignFile: file, AutorejectFile: file})
	for id, want := range map[string]bool{
		"exact.example": true, "exactXexample": true, // "." is any character in an expression, as in Salt
		"exact.example.com": false, "spaced": true, "web": true, "web1.example": true, "aweb": false, "db7.x": true, "db77.x": false,
		"q1": true, "r12": true, "r": false, "r12x": false, "alpha": true, "beta": true, "alphabet": false, "xbeta": false,
		"(unclosed": true, "nbz": true, "naz": true, // [!a] is an expression as well
		"comment": false, "hash": false, "other": false,
	} {
		if got := a.Accept(id, nil); got != want {
			t.Errorf("accept %q: %v", id, got)
		}
		if got := a.Reject(id); got != want {
			t.Errorf("reject %q: %v", id, got)
		}
	}

	write(t, file, "changed\n", 0o600)
	if a.Accept("web1", nil) || !a.Accept("changed", nil) {
		t.Error("a change of the file was not seen")
	}

	for mode, want := range map[os.FileMode]bool{0o600: true, 0o644: true, 0o664: false, 0o646: false, 0o666: false} {
		check.Must(t, os.Chmod(file, mode))
		if got := a.Accept("changed", nil); got != want {
			t.Errorf("mode %v: %v", mode, got)
		}
	}

	check.Must(t, os.Chmod(file, 0o660))
	if p := keys.NewAutosign(keys.AutosignConfig{AutosignFile: file, Permissive: true}); !p.Accept("changed", nil) {
		t.Error("permissive: refused a file of our own group")
	}

	check.Must(t, os.Remove(file))
	if a.Accept("changed", nil) {
		t.Error("accepted by a file that is gone")
	}

	check.Must(t, syscall.Mkfifo(file, 0o600))
	if a.Accept("changed", nil) {
		t.Error("accepted by a pipe")
	}
}

func TestAutosignFolder(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	a := keys.NewAutosign(keys.AutosignConfig{Dir: dir, Now: func() time.Time { return now }})
	if a.Accept("m", nil) {
		t.Error("accepted without a file")
	}

	write(t, filepath.Join(dir, "m"), "", 0o600)
	if !a.Accept("m", nil) || a.Accept("m", nil) {
		t.Error("a file is good exactly once")
	}

	// A file has no effect from the moment at which it expires.
	write(t, filepath.Join(dir, "late"), "", 0o600)
	now = now.Add(120*time.Minute + time.Second)
	if a.Accept("late", nil) {
		t.Error("accepted by an expired file")
	}

	if _, err := os.Stat(filepath.Join(dir, "late")); err == nil {
		t.Error("the expired file is still there")
	}

	check.Must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	check.Must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	if a.Accept("link", nil) || a.Accept("folder", nil) {
		t.Error("accepted by something that is no file")
	}
}

func TestAutosignGrains(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "role"), "# roles\nweb\n db \n\n", 0o600)
	write(t, filepath.Join(dir, "open"), "x\n", 0o666)
	a := keys.NewAutosign(keys.AutosignConfig{GrainsDir: dir})
	for _, c := range []struct {
		grain, value string
		want         bool
	}{
		{"role", "web", true}, {"role", "db", true}, {"role", "", false}, {"role", "# roles", false}, {"role", "we", false},
		{"other", "web", false}, {"../role", "web", false}, {"open", "x", false},
	} {
		if got := a.Accept("m", map[string]string{c.grain: c.value}); got != c.want {
			t.Errorf("%s=%q: %v", c.grain, c.value, got)
		}
	}

	if a.Accept("m", nil) {
		t.Error("accepted without grains")
	}
}

func TestAutosignNothing(t *testing.T) {
	a := keys.NewAutosign(keys.AutosignConfig{})
	if a.Accept("m", map[string]string{"a": "b"}) || a.Reject("m") || a.Open() {
		t.Error("the zero configuration decides something")
	}
	if b := keys.NewAutosign(keys.AutosignConfig{AutoAccept: true}); !b.Accept("m", nil) || !b.Open() {
		t.Error("auto_accept does not accept")
	}
}
