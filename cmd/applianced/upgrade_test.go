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
	"strings"
	"testing"
)

// TestFinding21PlainHTTP: a version is not fetched without encryption unless
// somebody asks for it.
func TestFinding21PlainHTTP(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "bundle") }))
	defer s.Close()
	if r, err := open(t.Context(), s.URL, false); err == nil || !strings.Contains(err.Error(), "--allow-http") {
		t.Errorf("%v %v", r, err)
	}
	r, err := open(t.Context(), s.URL, true)
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
