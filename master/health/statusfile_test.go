package health

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/internal/control"
)

func TestWriteStatusFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	read := func() (s control.Status) {
		t.Helper()
		b, err := os.ReadFile(path)
		must(t, err)
		must(t, json.Unmarshal(b, &s))
		return s
	}

	long, err := json.Marshal(control.Status{ID: strings.Repeat("x", 500), Accepted: 1})
	must(t, err)
	must(t, writeFile(path, long))
	if s := read(); s.Accepted != 1 {
		t.Errorf("%+v", s)
	}

	// No new file can be made: the old one is written over, whole.
	must(t, os.Mkdir(path+".new", 0o700))
	must(t, os.WriteFile(filepath.Join(path+".new", "x"), nil, 0o600))
	for i, text := range []string{"short", strings.Repeat("y", 900), "again"} {
		b, err := json.Marshal(control.Status{ID: text, Accepted: i + 2})
		must(t, err)
		must(t, writeFile(path, b))
		if s := read(); s.ID != text || s.Accepted != i+2 {
			t.Errorf("%.20q: %+v", text, s)
		}
	}

	must(t, os.Remove(path))
	if err := writeFile(path, long); err == nil {
		t.Error("no file could be written, and no error")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
