package cert

import (
	"crypto/rand"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPool(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, err := New("storage of c1", rand.Reader, now)
	if err != nil {
		t.Fatal(err)
	}

	other, _ := New("storage of c2", rand.Reader, now)
	m, err := ca.Issue("node1", rand.Reader, now)
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name string
		ca   Pair
		cn   string
		at   time.Time
		ok   bool
	}{
		{"good", ca, "node1", now, true},
		{"clock a little behind", ca, "node1", now.Add(-30 * time.Minute), true},
		{"clock far behind", ca, "node1", now.Add(-backdate - time.Hour), false},
		{"expired", ca, "node1", now.Add(memberLife + time.Hour), false},
		{"other name", ca, "node2", now, false},
		{"other pool", other, "node1", now, false},
	} {
		if err := Verify(tt.ca.Cert, m.Cert, tt.cn, tt.at); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}

	if end, err := Expires(m.Cert); err != nil || !end.Equal(now.Add(memberLife)) {
		t.Errorf("expires %v %v", end, err)
	}

	late, err := ca.Issue("node9", rand.Reader, now.Add(authorityLife-time.Hour))
	if end, _ := Expires(late.Cert); err != nil || end.After(now.Add(authorityLife)) {
		t.Errorf("outlives its authority: %v %v", end, err)
	}

	for _, bad := range []struct {
		ca   Pair
		name string
	}{
		{ca, ""},
		{ca, strings.Repeat("x", 65)},
		{Pair{}, "a"},
		{Pair{Cert: ca.Cert, Key: []byte("x")}, "a"},
		{Pair{Cert: ca.Key, Key: ca.Key}, "a"},
	} {
		if _, err := bad.ca.Issue(bad.name, rand.Reader, now); err == nil {
			t.Errorf("issued for %q", bad.name)
		}
	}

	if _, err := ca.Issue("a", rand.Reader, now.Add(authorityLife+time.Hour)); err == nil {
		t.Error("an expired authority signs")
	}

	// A member cannot sign others.
	if forged, err := m.Issue("node7", rand.Reader, now); err == nil {
		if err := Verify(ca.Cert, forged.Cert, "node7", now); err == nil {
			t.Error("a member's signature is accepted")
		}
	}
}

// Both directions of a TLS connection accept the certificates.
func TestHandshake(t *testing.T) {
	now := time.Now()
	ca, err := New("pool", rand.Reader, now)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	m, err := ca.Issue("node1", rand.Reader, now)
	if err != nil {
		t.Fatal(err)
	}

	for range 2 { // again: nothing changes
		if err := Install(dir, ca.Cert, m); err != nil {
			t.Fatal(err)
		}
	}

	if fi, err := os.Stat(filepath.Join(dir, "glusterfs.key")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("key: %v %v", fi.Mode(), err)
	}

	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "glusterfs.pem"), filepath.Join(dir, "glusterfs.key"))
	if err != nil {
		t.Fatal(err)
	}

	a, b := net.Pipe()
	cfg := &tls.Config{
		Certificates:       []tls.Certificate{pair},
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true,
		MinVersion:         tls.VersionTLS12,
	}

	done := make(chan error, 1)
	go func() { done <- tls.Server(a, cfg).Handshake() }()
	if err := tls.Client(b, cfg).Handshake(); err != nil {
		t.Error(err)
	}

	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestServer: a certificate for HTTPS is good for its hosts, for a year, and for who
// trusts its authority.
func TestServer(t *testing.T) {
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	ca, err := New("Salt API of lab", rand.Reader, now)
	if err != nil {
		t.Fatal(err)
	}

	other, err := New("Salt API of lab", rand.Reader, now)
	if err != nil {
		t.Fatal(err)
	}

	own, err := ca.IssueServer("n1", []string{"n1", "*.example.org", "192.0.2.1", "2001:db8::1"}, rand.Reader, now)
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		ca    Pair
		hosts string
		at    time.Duration
		good  bool
	}{
		{ca, "n1 *.example.org 192.0.2.1 2001:db8::1", 0, true},
		{ca, "n1", 396 * 24 * time.Hour, true},
		{ca, "n1", 398 * 24 * time.Hour, false},
		{ca, "n1", -48 * time.Hour, false},
		{ca, "n2", 0, false},
		{ca, "192.0.2.2", 0, false},
		{other, "n1", 0, false},
	} {
		if err := Serves(c.ca.Cert, own.Cert, strings.Fields(c.hosts), now.Add(c.at)); (err == nil) != c.good {
			t.Errorf("%s, %s: %v", c.hosts, c.at, err)
		}
	}

	if p, ok := Split(own.Join()); !ok || string(p.Cert) != string(own.Cert) || string(p.Key) != string(own.Key) {
		t.Errorf("taken apart: %t %s", ok, p.Cert)
	}

	for _, text := range [][]byte{nil, []byte("x"), own.Cert, own.Key,
		Pair{Cert: own.Cert, Key: ca.Key}.Join(), own.Join()[:len(own.Join())/2]} {
		if _, ok := Split(text); ok {
			t.Errorf("taken: %s", text)
		}
	}
}
