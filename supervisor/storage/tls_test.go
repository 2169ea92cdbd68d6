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

// otherNodes are nodes of the cluster that are asked for certificates.
type otherNodes struct {
	sign      func(request []byte) (Signed, error)
	authority func() (Authority, error)
	signed    int
}

// Sign implements Certifier.
func (o *otherNodes) Sign(_ context.Context, request []byte) (Signed, error) {
	o.signed++
	return o.sign(request)
}

// Authority implements Certifier.
func (o *otherNodes) Authority(context.Context) (Authority, error) { return o.authority() }

// The node that forms the pool makes the authority. One that joins has its certificate
// signed and does not see the authority's key; it gets that when it serves, and an arbiter
// never (finding 11 of the second audit).
func TestAuthority(t *testing.T) {
	ctx := t.Context()
	now := time.Now()
	first := New(Config{Dir: t.TempDir(), Self: "node1"})
	dir := t.TempDir()
	want := glusterctl.Desired{Volume: "cluster", Self: "node1", TLS: true}
	if err := first.ensureCertificateIn(ctx, dir, want); !errors.Is(err, errNoAuthority) {
		t.Errorf("nobody forms and nobody can be asked: %v", err)
	}

	if _, err := first.Authority(); !errors.Is(err, errNoAuthority) {
		t.Errorf("before it is made: %v", err)
	}

	want.Form = true
	if err := first.ensureCertificateIn(ctx, dir, want); err != nil {
		t.Fatal(err)
	}

	a, err := first.Authority()
	if err != nil || !goodCertificate(dir, a.Cert, "node1", now) {
		t.Fatal(err)
	}

	want.Form = false
	if err := first.ensureCertificateIn(ctx, dir, want); err != nil {
		t.Errorf("after a restart: %v", err)
	}

	fault := errors.New("node1 does not answer")
	others := &otherNodes{
		sign:      func([]byte) (Signed, error) { return Signed{}, fault },
		authority: func() (Authority, error) { return Authority{}, fault },
	}

	joiner := New(Config{Dir: t.TempDir(), Self: "node2", Others: others})
	theirs := t.TempDir()
	want.Self = "node2"
	table := func(state nodes.State, role string) nodes.Table {
		return nodes.Table{
			Version: 2,
			Nodes:   []nodes.Node{{Name: "node1", State: nodes.Member}, {Name: "node2", State: state, Storage: role}},
		}
	}

	joiner.SetTable(table(nodes.Joining, "data"))
	for name, sign := range map[string]func([]byte) (Signed, error){
		"nobody answers":  others.sign,
		"rubbish":         func([]byte) (Signed, error) { return Signed{Cert: []byte("x"), Authority: a.Cert}, nil },
		"in another name": func(r []byte) (Signed, error) { return first.Sign(r, "node3") },
		"another's request": func([]byte) (Signed, error) {
			r, _, _ := cert.Request("node2", rand.Reader)
			return first.Sign(r, "node2")
		},
	} {
		others.sign = sign
		if err := joiner.ensureCertificateIn(ctx, theirs, want); err == nil || exists(filepath.Join(theirs, "glusterfs.pem")) {
			t.Errorf("%s: %v", name, err)
		}
	}

	others.sign = func(r []byte) (Signed, error) { return first.Sign(r, "node2") }
	others.signed = 0
	for range 2 {
		if err := joiner.ensureCertificateIn(ctx, theirs, want); err != nil {
			t.Fatal(err)
		}
	}

	key := filepath.Join(joiner.cfg.Dir, tlsDir, authorityKey)
	if others.signed != 1 || !goodCertificate(theirs, a.Cert, "node2", now) || exists(key) {
		t.Errorf("asked %d times; the authority's key is there: %v", others.signed, exists(key))
	}

	// The key comes when the node serves, from a node that has the same authority.
	others.authority = first.Authority
	joiner.getAuthority(ctx)
	if exists(key) {
		t.Error("a node that joins has the authority's key")
	}

	joiner.SetTable(table(nodes.Member, "arbiter"))
	joiner.getAuthority(ctx)
	if exists(key) {
		t.Error("an arbiter has the authority's key")
	}

	joiner.SetTable(table(nodes.Member, "data"))
	others.authority = func() (Authority, error) { return Authority{Cert: a.Cert, Key: []byte("rubbish")}, nil }
	joiner.getAuthority(ctx)
	if exists(key) {
		t.Error("rubbish was taken for an authority")
	}

	others.authority, joiner.askedAt = first.Authority, time.Time{}
	joiner.getAuthority(ctx)
	if st, err := os.Stat(key); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the authority's key: %v, %v", st, err)
	}

	if _, err := joiner.Sign(nil, "node3"); err == nil {
		t.Error("no request was signed")
	}

	// A node that becomes an arbiter gives the key up and keeps its certificate.
	joiner.SetTable(table(nodes.Member, "arbiter"))
	if err := joiner.ensureCertificateIn(ctx, theirs, want); err != nil || exists(key) ||
		!goodCertificate(theirs, a.Cert, "node2", now) {
		t.Errorf("as an arbiter: %v, the key is there: %v", err, exists(key))
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

		if err := cert.Verify(a.Cert, []byte(read("glusterfs.pem")), self, at); err != nil ||
			read("glusterfs.ca") != string(a.Cert) {
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
	m.table = nodes.Table{
		StorageTLS: true,
		Nodes: []nodes.Node{
			{Name: "node1", Address: "10.0.0.1"},
			{Name: "node2", Address: "10.0.0.2"},
			{Name: "node3", Address: "10.0.0.3"},
		},
	}

	m.obs = &glusterctl.Observation{Pool: []cli.Peer{{Hostname: "localhost", Self: true}, {Hostname: "node2"}}}
	for address, in := range map[string]bool{
		"10.0.0.1": true,
		"10.0.0.2": true,
		"node2":    true,
		"10.0.0.3": false,
		"10.0.0.9": false,
	} {
		if got := m.inPool(address); got != in {
			t.Errorf("%s in the pool: %v", address, got)
		}
	}
}
