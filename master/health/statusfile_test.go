package health

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/internal/control"
	"saltern/test/check"
)

func TestWriteStatusFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	read := func() (s control.Status) {
		t.Helper()
		b, err := os.ReadFile(path)
		check.Must(t, err)
		check.Must(t, json.Unmarshal(b, &s))
		return s
	}

	long, err := json.Marshal(control.Status{ID: strings.Repeat("x", 500), Accepted: 1})
	check.Must(t, err)
	check.Must(t, writeFile(path, long))
	if s := read(); s.Accepted != 1 {
		t.Errorf("%+v", s)
	}

	// If no new file can be created, the old file is overwritten completely.
	check.Must(t, os.Mkdir(path+".new", 0o700))
	check.Must(t, os.WriteFile(filepath.Join(path+".new", "x"), nil, 0o600))
	for i, text := range []string{"short", strings.Repeat("y", 900), "again"} {
		b, err := json.Marshal(control.Status{ID: text, Accepted: i + 2})
		check.Must(t, err)
		check.Must(t, writeFile(path, b))
		if s := read(); s.ID != text || s.Accepted != i+2 {
			t.Errorf("%.20q: %+v", text, s)
		}
	}

	check.Must(t, os.Remove(path))
	if err := writeFile(path, long); err == nil {
		t.Error("no file could be written, and no error")
	}
}
