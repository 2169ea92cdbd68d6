// Package controltest keeps the recorded files of package control: the tests of
// the side that writes make them, the tests of the other side read them.
package controltest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"saltern/test/source"
)

// Path returns where a recorded file is.
func Path(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(source.Root(t), "internal/control/testdata", name)
}

// Recorded fails the test if got is not what the file holds. With update it
// writes the file first.
func Recorded(t testing.TB, name string, got []byte, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(Path(t, name), got, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(Path(t, name))
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s\nif the change is meant and old readers can bear it: go test -update",
			name, got, want)
	}
}
