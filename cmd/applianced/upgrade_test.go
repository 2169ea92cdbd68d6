package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"saltern/supervisor/status"
	"strings"
	"testing"
	"time"
)

// TestFinding21PlainHTTP: a version is not fetched without encryption unless
// somebody asks for it.
func TestFinding21PlainHTTP(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "bundle") }))
	defer s.Close()
	if r, err := openVersion(t.Context(), s.URL, false); err == nil || !strings.Contains(err.Error(), "--allow-http") {
		t.Errorf("%v %v", r, err)
	}
	r, err := openVersion(t.Context(), s.URL, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "bundle" {
		t.Errorf("%q %v", b, err)
	}
}

// TestNoKey: a machine that trusts nobody says so, and where a key goes.
func TestNoKey(t *testing.T) {
	dirs := []string{filepath.Join(t.TempDir(), "none"), t.TempDir()}
	var out strings.Builder
	if err := tellKeys(&out, dirs); err != nil || !strings.Contains(out.String(), "accepts no upgrade") ||
		!strings.Contains(out.String(), dirs[1]) {
		t.Errorf("%v %q", err, out.String())
	}

	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}

	der, err := x509.MarshalPKIXPublicKey(public)
	if err == nil {
		err = os.WriteFile(filepath.Join(dirs[1], "ours.pem"),
			pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	out.Reset()
	if err := tellKeys(&out, dirs); err != nil || out.String() != "" {
		t.Errorf("%v %q", err, out.String())
	}
}

// A version proves itself by the node's own master and storage: that other nodes' masters answer at its front does not.
func TestWellWithVersion(t *testing.T) {
	since := time.Now()
	for name, c := range map[string]struct {
		health          status.Health
		master, storage string
		well            bool
	}{
		"healthy":                         {status.Healthy, "ok", "ok", true},
		"degraded":                        {status.Degraded, "ok", "healing", true},
		"an arbiter":                      {status.Healthy, "-", "ok", true},
		"not set up":                      {status.Unconfigured, "down", "ok", true},
		"not serving":                     {status.NotServing, "ok", "ok", false},
		"its master ends, others answer":  {status.Degraded, "down", "ok", false},
		"its master hangs, others answer": {status.Degraded, "failing", "ok", false},
		"the volume is not mounted":       {status.Degraded, "ok", "waiting", false},
		"the volume hangs":                {status.Degraded, "ok", "hangs", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := status.Document{
				Health:       c.health,
				Exit:         c.health.Exit(),
				ServingSince: &since,
				Nodes: []status.Node{
					{Name: "n2", Master: "ok"},
					{Name: "n1", This: true, Master: c.master, Storage: c.storage},
				},
			}

			if got := wellWithVersion(d); got != c.well {
				t.Errorf("well: %t", got)
			}
		})
	}
}
