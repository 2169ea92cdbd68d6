package saltapi

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/glusterctl/cert"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/settings"
)

// apiNodes are the APIs of nodes that share a folder.
func apiNodes(t *testing.T, now *time.Time, names ...string) (out []*API) {
	t.Helper()
	shared := t.TempDir()
	for _, n := range names {
		s := settings.Default(n)
		s.DataDir, s.Storage.Path, s.Cluster = t.TempDir(), shared, strings.Repeat("c", 63)
		if err := os.MkdirAll(s.APIDir(), 0o755); err != nil {
			t.Fatal(err)
		}

		env := child.Env{
			Settings: &s,
			Log:      slog.New(slog.DiscardHandler),
			Now:      func() time.Time { return *now },
		}

		out = append(out,
			New(Config{Env: env, Programs: &child.Programs{}, Options: func() string { return "" }}))
	}

	return out
}

// TestAPICertificates: nodes that begin at the same moment have one authority; a
// certificate is kept until it ends or is not for all names, and its key is no
// stranger's.
func TestAPICertificates(t *testing.T) {
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	nodes := apiNodes(t, &now, "n1", "n2", "n3", "n4")
	var all sync.WaitGroup
	for _, n := range nodes {
		all.Go(func() {
			if err := n.renewCertificate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()
	ca, err := os.ReadFile(nodes[0].env.Settings.APIAuthority())
	if err != nil {
		t.Fatal(err)
	}

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	for _, n := range nodes {
		pair, err := tls.LoadX509KeyPair(n.env.Settings.APICert(), n.env.Settings.APICert())
		if err != nil {
			t.Fatal(err)
		}

		if _, err := pair.Leaf.Verify(x509.VerifyOptions{
			Roots:       roots,
			DNSName:     n.env.Settings.Node,
			CurrentTime: now,
		}); err != nil {
			t.Errorf("%s: %v", n.env.Settings.Node, err)
		}

		if strings.Contains(string(ca), "KEY") {
			t.Error("the key of the authority is where everybody reads it")
		}
	}

	for _, path := range []string{nodes[0].env.Settings.APICert(), nodes[0].env.Settings.SharedAPIAuthority()} {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", path, fi.Mode(), err)
		}
	}

	if left, _ := filepath.Glob(filepath.Join(nodes[0].env.Settings.SharedNodesDir(), "*")); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}

	n := nodes[0]
	for _, c := range []struct {
		what   string
		change func()
		anew   bool
	}{
		{"nothing", func() {}, false},
		{"time", func() { now = now.Add(200 * 24 * time.Hour) }, false},
		{"more time", func() { now = now.Add(100 * 24 * time.Hour) }, true},
		{"another name", func() { n.env.Settings.API.Names = []string{"salt.example.org"} }, true},
		{"again", func() {}, false},
		{"a file cut short", func() { _ = os.Truncate(n.env.Settings.APICert(), 300) }, true},
		{"no authority here", func() { _ = os.Remove(n.env.Settings.APIAuthority()) }, true},
	} {
		before, mark := read(t, n.env.Settings.APICert()), n.signature()
		c.change()
		cut := read(t, n.env.Settings.APICert()) != before
		if err := n.renewCertificate(t.Context()); err != nil {
			t.Fatal(err)
		}

		if anew := read(t, n.env.Settings.APICert()) != before; anew != c.anew && !cut || (n.signature() != mark) != c.anew {
			t.Errorf("%s: anew %t", c.what, anew)
		}
	}
}

// TestAPINewStorage: nodes whose shared storage is a new one have one authority again
// at their next start, and keep what they have while there is none.
func TestAPINewStorage(t *testing.T) {
	now := time.Now()
	nodes := apiNodes(t, &now, "n1", "n2")
	var before, after []string
	start := func() (ca []string) {
		for _, n := range nodes {
			if err := n.rejoin(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := n.renewCertificate(t.Context()); err != nil {
				t.Fatal(err)
			}
			ca = append(ca, read(t, n.env.Settings.APIAuthority()))
		}

		return ca
	}

	before = start()
	shared := nodes[0].env.Settings.SharedAPIAuthority()
	if err := os.WriteFile(shared, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	if after = start(); after[0] != before[0] || after[1] != before[0] {
		t.Error("given up for a broken one")
	}

	if err := os.Remove(shared); err != nil {
		t.Fatal(err)
	}

	if after = start(); after[0] == before[0] || after[0] != after[1] {
		t.Error("not one authority again")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAPIAuthorityWrong: an authority that is none is not replaced in silence, and
// keeps nobody from using a certificate that is there.
func TestAPIAuthorityWrong(t *testing.T) {
	now := time.Now()
	nodes := apiNodes(t, &now, "n1", "n2")
	if err := nodes[0].renewCertificate(t.Context()); err != nil {
		t.Fatal(err)
	}

	other, err := cert.New("x", strings.NewReader(strings.Repeat("r", 1<<16)), now)
	if err != nil {
		t.Fatal(err)
	}

	path := nodes[0].env.Settings.SharedAPIAuthority()
	for _, text := range []string{"", "x", string(other.Cert), strings.Repeat("x", 1<<20)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		if err := nodes[1].renewCertificate(t.Context()); err == nil ||
			!strings.Contains(err.Error(), path) && !strings.Contains(err.Error(), "authority") {
			t.Errorf("%.20q: %v", text, err)
		}

		if err := nodes[0].renewCertificate(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
