package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cert"
)

// The node that forms the pool makes the authority, others get it from a
// member, and keep it.
func TestAuthority(t *testing.T) {
	ctx := t.Context()
	first := New(Config{Dir: t.TempDir(), Self: "node1"})
	want := glusterctl.Desired{Volume: "cluster", Self: "node1", TLS: true}
	if _, err := first.authority(ctx, want); !errors.Is(err, ErrNoAuthority) {
		t.Errorf("nobody forms and nobody can be asked: %v", err)
	}
	if _, err := first.Authority(); !errors.Is(err, ErrNoAuthority) {
		t.Errorf("before it is made: %v", err)
	}
	want.Form = true
	a, err := first.authority(ctx, want)
	if err != nil {
		t.Fatal(err)
	}
	want.Form = false
	if again, err := first.authority(ctx, want); err != nil || string(again.Cert) != string(a.Cert) {
		t.Errorf("after a restart: %v", err)
	}

	asked := 0
	answer, fault := Authority{}, errors.New("node1 does not answer")
	join := New(Config{Dir: t.TempDir(), Self: "node2", AskAuthority: func(context.Context) (Authority, error) { asked++; return answer, fault }})
	want.Self = "node2"
	if _, err := join.authority(ctx, want); !errors.Is(err, fault) {
		t.Errorf("nobody answers: %v", err)
	}
	answer, fault = Authority{Cert: a.Cert, Key: []byte("rubbish")}, nil
	if _, err := join.authority(ctx, want); err == nil {
		t.Error("rubbish was taken for an authority")
	}
	answer, _ = first.Authority()
	for range 2 {
		if got, err := join.authority(ctx, want); err != nil || string(got.Key) != string(a.Key) {
			t.Errorf("from another node: %v", err)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
	if st, err := os.Stat(filepath.Join(join.cfg.Dir, tlsDir, authorityKey)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the authority's key: %v, %v", st, err)
	}
}

func TestCertificate(t *testing.T) {
	now := time.Now()
	pool := func() Authority {
		p, err := cert.New("cluster", rand.Reader, now)
		if err != nil {
			t.Fatal(err)
		}
		return Authority{Cert: p.Cert, Key: p.Key}
	}
	ours, theirs := pool(), pool()
	fixed, etc := t.TempDir(), filepath.Join(t.TempDir(), "ssl")
	if certificateDir(fixed) != fixed {
		t.Error("without links")
	}
	if err := os.Symlink(filepath.Join(etc, "glusterfs.pem"), filepath.Join(fixed, "glusterfs.pem")); err != nil {
		t.Fatal(err)
	}
	dir := certificateDir(fixed)
	if dir != etc {
		t.Fatalf("the link leads to %s", dir)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	install := func(a Authority, self string, at time.Time, fresh bool) {
		t.Helper()
		before, _ := os.ReadFile(filepath.Join(dir, "glusterfs.pem"))
		if err := installCertificate(dir, a, self, at); err != nil {
			t.Fatal(err)
		}
		if changed := read("glusterfs.pem") != string(before); changed != fresh {
			t.Errorf("a new certificate: %v", changed)
		}
		if err := cert.Verify(a.Cert, []byte(read("glusterfs.pem")), self, at); err != nil || read("glusterfs.ca") != string(a.Cert) {
			t.Errorf("%v", err)
		}
	}
	install(ours, "node1", now, true)
	install(ours, "node1", now, false)
	install(ours, "node2", now, true)                  // another name
	install(ours, "node2", now.AddDate(4, 6, 0), true) // it would end soon
	install(theirs, "node2", now, true)                // another pool
	if err := os.WriteFile(filepath.Join(dir, "glusterfs.key"), []byte(read("glusterfs.ca")), 0o600); err != nil {
		t.Fatal(err)
	}
	install(theirs, "node2", now, true) // the key is not that of the certificate
	if err := os.Remove(filepath.Join(dir, "glusterfs.ca")); err != nil {
		t.Fatal(err)
	}
	install(theirs, "node2", now, true)
}
