package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cert"
	"saltern/glusterctl/cli"
	"saltern/supervisor/nodes"
)

// The node that forms the pool makes the authority, others get it from a
// member, and keep it.
func TestAuthority(t *testing.T) {
	ctx := t.Context()
	first := New(Config{Dir: t.TempDir(), Self: "node1"})
	want := glusterctl.Desired{Volume: "cluster", Self: "node1", TLS: true}
	if _, err := first.authority(ctx, want); !errors.Is(err, errNoAuthority) {
		t.Errorf("nobody forms and nobody can be asked: %v", err)
	}
	if _, err := first.Authority(); !errors.Is(err, errNoAuthority) {
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

// Before a machine is taken into a pool with TLS its glusterd has to speak TLS;
// members are only dialled.
func TestDialBeforeTLS(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("not TLS\n"))
			_ = c.Close()
		}
	}()
	if err := dialDaemon(t.Context(), ln.Addr().String(), false); err != nil {
		t.Errorf("a member: %v", err)
	}
	if err := dialDaemon(t.Context(), ln.Addr().String(), true); err == nil {
		t.Error("glusterd in clear was taken for one with TLS")
	}
	m := New(Config{Dir: t.TempDir(), Self: "node1"})
	m.table = nodes.Table{StorageTLS: true, Nodes: []nodes.Node{{Name: "node1", Address: "10.0.0.1"}, {Name: "node2", Address: "10.0.0.2"}, {Name: "node3", Address: "10.0.0.3"}}}
	m.obs = &glusterctl.Observation{Pool: []cli.Peer{{Hostname: "localhost", Self: true}, {Hostname: "node2"}}}
	for address, in := range map[string]bool{"10.0.0.1": true, "10.0.0.2": true, "node2": true, "10.0.0.3": false, "10.0.0.9": false} {
		if got := m.inPool(address); got != in {
			t.Errorf("%s in the pool: %v", address, got)
		}
	}
}
