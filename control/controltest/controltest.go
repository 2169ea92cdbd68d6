// Package controltest keeps the recorded files of package control: the tests of
// the side that writes make them, the tests of the other side read them.
package controltest

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Path returns where a recorded file is.
func Path(name string) string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "..", "testdata", name)
}

// Recorded fails the test if got is not what the file holds. With update it
// writes the file first.
func Recorded(t testing.TB, name string, got []byte, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(Path(name), got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(Path(name))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s\nif the change is meant and old readers can bear it: go test -update", name, got, want)
	}
}
