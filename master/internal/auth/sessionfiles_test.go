package auth_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/internal/durable"
	"saltern/master/crypt"
	"saltern/master/internal/auth"
	"saltern/master/keys"
	"saltern/test/check"
)

// In a cluster with Salt's masters the session keys are their files: what
// another master wrote is good here, and what is written here has their form.
func TestSessionFilesOfSalt(t *testing.T) {
	dir := t.TempDir()
	open := func() *master {
		return newMaster(t, options{secrets: auth.SecretsConfig{SessionDir: dir, PublishSession: time.Hour}})
	}
	a, b := open(), open()
	touch := func(name string) { check.Must(t, os.Chtimes(filepath.Join(dir, name), time.Time{}, a.clock.now())) }
	theirs, err := crypt.NewKey(nil)
	check.Must(t, err)

	for _, m := range []*master{a, b} {
		check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
		check.Must(t, m.keys.Put("other", keys.Accepted, publicText(t, "min7")))
	}

	// A Salt master has signed the minion in.
	check.Must(t, os.WriteFile(filepath.Join(dir, "m"), []byte(theirs.String()), 0o600))
	touch("m")
	if _, _, err := a.OpenRequest("m", theirs.Seal([]byte{0xc0}, "")); err != nil {
		t.Errorf("the session of a Salt master: %v", err)
	}

	n := newMinion(t, "m", "min6")
	n.signIn(t, b)
	if n.session.String() != theirs.String() {
		t.Error("the minion was told another key than the file's")
	}

	// Made here, good there.
	o := newMinion(t, "other", "min7")
	o.signIn(t, a)
	text, err := os.ReadFile(filepath.Join(dir, "other"))
	st, err2 := os.Stat(filepath.Join(dir, "other"))
	if err != nil || err2 != nil || string(text) != o.session.String() || st.Mode().Perm() != 0o600 || len(text) != 76 {
		t.Fatalf("%q, %v, %v, %v", text, st.Mode(), err, err2)
	}

	touch("other")
	if _, _, err := b.OpenRequest("other", o.session.Seal([]byte{0xc0}, "")); err != nil {
		t.Errorf("the session of another master: %v", err)
	}

	// Another master rotates: the old key is out at once.
	next, err := crypt.NewKey(nil)
	check.Must(t, err)
	check.Must(t, durable.Replace(filepath.Join(dir, "m"), []byte(next.String()), 0o600))
	touch("m")

	if _, _, err := a.OpenRequest("m", theirs.Seal([]byte{0xc0}, "")); err == nil {
		t.Error("a key that another master replaced is still good")
	}

	if _, _, err := a.OpenRequest("m", next.Seal([]byte{0xc0}, "")); err != nil {
		t.Error(err)
	}

	// Too old: replaced here.
	a.clock.add(2 * time.Hour)
	n.signIn(t, a)
	if n.session.String() == next.String() {
		t.Error("an old session key was not replaced")
	}

	// A deleted minion's session key goes with it.
	check.Must(t, a.keys.Delete("m"))
	if _, err := os.Stat(filepath.Join(dir, "m")); !os.IsNotExist(err) {
		t.Errorf("the session key of a deleted minion: %v", err)
	}

	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 || strings.HasPrefix(names[0].Name(), ".") {
		t.Errorf("left behind: %v, %v", names, err)
	}

	// A removed master knew all of them.
	check.Must(t, a.secrets.SetClusterSeed(strings.Repeat("ab", 32)))
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}

	check.Must(t, a.secrets.SetClusterSeed(strings.Repeat("ab", 32)))
	o.signIn(t, a)
	check.Must(t, a.secrets.SetClusterSeed(strings.Repeat("ab", 32))) // the same
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("a session key is missing: %v, %v", names, err)
	}

	// A file that others may read is no secret.
	check.Must(t, os.Chmod(filepath.Join(dir, "other"), 0o644))
	touch("other")
	c := open()
	check.Must(t, c.keys.Put("other", keys.Accepted, publicText(t, "min7")))

	if _, _, err := c.OpenRequest("other", o.session.Seal([]byte{0xc0}, "")); err == nil {
		t.Error("a readable file was used")
	}
}

// While ours go over from Salt's files to derived keys one by one, a minion
// that has a derived key already is served by all.
func TestSessionFilesAndDerivedKeys(t *testing.T) {
	seed := strings.Repeat("cd", 32)
	files := newMaster(t, options{secrets: auth.SecretsConfig{SessionDir: t.TempDir(), Seed: seed}})
	derives := newMaster(t, options{secrets: auth.SecretsConfig{Seed: seed}})
	for _, m := range []*master{files, derives} {
		check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	}

	n := newMinion(t, "m", "min6")
	n.signIn(t, derives)
	for _, m := range []*master{files, derives} {
		if _, key, err := m.OpenRequest("m", n.session.Seal([]byte{0xc0}, "")); err != nil ||
			key.String() != n.session.String() {
			t.Errorf("a derived key: %v", err)
		}
	}

	stranger, err := crypt.NewKey(nil)
	check.Must(t, err)
	if _, _, err := files.OpenRequest("m", stranger.Seal([]byte{0xc0}, "")); !errors.Is(err, crypt.ErrOpen) {
		t.Errorf("a key of nobody: %v", err)
	}
}
