package auth_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/crypt"
	"saltern/master/internal/auth"
	"saltern/master/keys"
	"saltern/test/check"
)

// A new seed ends all sessions at once, everywhere alike.
func TestClusterSeed(t *testing.T) {
	key, err := crypt.NewKey(nil)
	check.Must(t, err)
	one, two := strings.Repeat("1a", 32), strings.Repeat("2b", 32)
	a := newMaster(t, options{secrets: auth.SecretsConfig{Seed: one, ClusterKey: key}})
	b := newMaster(t, options{secrets: auth.SecretsConfig{Seed: one, ClusterKey: key}})
	for _, m := range []*master{a, b} {
		check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	}

	n := newMinion(t, "m", "min6")
	n.signIn(t, a)
	blob := n.session.Seal([]byte{0xc0}, "")
	if _, _, err := b.OpenRequest("m", blob); err != nil {
		t.Fatal(err)
	}

	check.Must(t, a.secrets.SetClusterSeed(two))
	check.Must(t, b.secrets.SetClusterSeed(two))
	if _, _, err := b.OpenRequest("m", blob); err == nil {
		t.Error("a session of the old seed is good")
	}

	n.signIn(t, a)
	if _, _, err := b.OpenRequest("m", n.session.Seal([]byte{0xc0}, "")); err != nil {
		t.Error(err)
	}

	if a.secrets.SetClusterSeed("short") == nil || a.secrets.RotationAsked() {
		t.Error("a short seed was taken, or a rotation made up")
	}

	check.Must(t, auth.RequestRotation(a.dir, "m1_master"))
	if !a.secrets.RotationAsked() || a.secrets.RotationAsked() {
		t.Error("a wish must be heard once")
	}
}

// A minion whose key another master has accepted is served, though this one has not seen that
// yet; not one whose key waits again.
func TestAcceptedElsewhere(t *testing.T) {
	key, err := crypt.NewKey(nil)
	check.Must(t, err)
	seed := strings.Repeat("1a", 32)
	a := newMaster(t, options{secrets: auth.SecretsConfig{Seed: seed, ClusterKey: key}})
	b := newMaster(t, options{secrets: auth.SecretsConfig{Seed: seed, ClusterKey: key}})
	check.Must(t, a.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	check.Must(t, b.keys.Put("m", keys.Pending, publicText(t, "min6")))
	n := newMinion(t, "m", "min6")
	n.signIn(t, a)
	blob := n.session.Seal([]byte{0xc0}, "")
	if _, _, err := b.OpenRequest("m", bytes.Clone(blob)); !errors.Is(err, auth.ErrNotAccepted) {
		t.Fatalf("it waits here: %v", err)
	}

	pki := filepath.Join(b.dir, "pki")
	check.Must(t, os.Rename(filepath.Join(pki, "minions_pre", "m"), filepath.Join(pki, "minions", "m")))
	if body, _, err := b.OpenRequest("m", bytes.Clone(blob)); err != nil || !bytes.Equal(body, []byte{0xc0}) {
		t.Errorf("%x, %v", body, err)
	}

	if !b.VerifyToken("m", n.tok(t)) {
		t.Error("its token is refused")
	}
}
