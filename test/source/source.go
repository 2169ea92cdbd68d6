// Package source finds the source of this module for tests that build it or read its
// files, in whatever way they were compiled.
package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Root returns the folder with this module's go.mod: the nearest of those above the
// current one. Modules of their own below it do not count.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}

	for at := dir; ; at = filepath.Dir(at) {
		b, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), "module saltern\n") {
			return at
		}
		if at == filepath.Dir(at) {
			t.Fatalf("%s is not below the source of this module", dir)
		}
	}
}
