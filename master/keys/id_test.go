package keys_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/keys"
	"saltern/test/check"
)

func TestAttack13MinionIDs(t *testing.T) {
	good := []string{
		"web1", "web1.example.com", "WEB-01", "db_2", "a", "10.0.0.7", "2001:db8::1", "id=with,comma;and+plus@x",
		"node 7", "~tilde", "-dash", "münchen", "例え", "x..y", "tmpabcd", strings.Repeat("a", keys.MaxIDLen),
	}

	bad := []string{
		"", ".", "..", "../x", "a/b", "/etc/passwd", `a\b`, `..\x`, "a\x00", "\x00", "a\n", "a\nb", "a\rb", "a\tb", "\x1b[31m", "a\x7f",
		".hidden", ".key_cache", "...", " a", "a ", " ", "*", "web*", "a?", "[ab]", "a]", "\xff", "a\xc3", "\u202etxt", "\u200b", "a\u00a0b", "\u2028",
		"\ufeffa", "\ue000", strings.Repeat("a", keys.MaxIDLen+1), strings.Repeat("a", 4096),
	}

	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "pki"), keys.Config{})
	for _, id := range good {
		if err := keys.ValidID(id); err != nil {
			t.Errorf("refused %q: %v", id, err)
		}
		if err := s.Put(id, keys.Pending, pem(t, 1)); err != nil {
			t.Errorf("cannot store %q: %v", id, err)
		}
	}

	auto := keys.NewAutosign(keys.AutosignConfig{AutoAccept: true, Dir: s.AutosignDir()})
	for _, id := range bad {
		err := keys.ValidID(id)
		if !errors.Is(err, keys.ErrID) {
			t.Errorf("accepted %q", id)
			continue
		}

		if len(id) > 3 && strings.Contains(err.Error(), id) {
			t.Errorf("the error repeats %q", id)
		}

		for what, err := range map[string]error{
			"Put": s.Put(id, keys.Accepted, pem(t, 1)), "Move": s.Move(id, keys.Accepted), "Delete": s.Delete(id), "Deny": s.Deny(id, pem(t, 1)),
			"Swap": s.Swap(id, keys.Entry{}, keys.Pending, pem(t, 1)),
		} {
			if !errors.Is(err, keys.ErrID) {
				t.Errorf("%s of %q: %v", what, id, err)
			}
		}

		s.Refresh(id)
		if auto.Accept(id, nil) || auto.Reject(id) {
			t.Errorf("autosign let %q in", id)
		}
	}

	if n := s.Count(keys.Pending); n != len(good) || s.Count(keys.Accepted) != 0 {
		t.Errorf("%d pending, %d accepted", n, s.Count(keys.Accepted))
	}

	outside, err := os.ReadDir(dir)
	if err != nil || len(outside) != 1 {
		t.Errorf("files outside: %v, %v", outside, err)
	}

	// Two ids that differ only in case are two minions.
	check.Must(t, s.Put("WEB1", keys.Accepted, pem(t, 2)))
	if state(s, "web1") != keys.Pending || state(s, "WEB1") != keys.Accepted {
		t.Error("case twins are mixed up")
	}
}

func FuzzValidID(f *testing.F) {
	for _, s := range []string{"web1", "..", "a/b", "a\x00", "\u202e", "é", strings.Repeat("x", 300)} {
		f.Add(s)
	}

	root := f.TempDir()
	f.Fuzz(func(t *testing.T, id string) {
		if keys.ValidID(id) != nil {
			return
		}

		path := filepath.Join(root, id)
		if filepath.Dir(path) != root || filepath.Base(path) != id || len(id) > 255 {
			t.Errorf("%q leaves the folder", id)
		}

		if strings.ContainsAny(id, "\n\r\x1b\x00") {
			t.Errorf("%q has control characters", id)
		}
	})
}
