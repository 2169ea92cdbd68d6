package main

import (
	"io"
	"net/http"
	"net/http/httptest"
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
