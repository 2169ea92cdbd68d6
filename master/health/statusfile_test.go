package health

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/control"
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

// A job cache that could not be written to is well again when the disk is,
// also when no minion returns anything.
func TestJobCacheProblemEnds(t *testing.T) {
	now, dir := time.Now(), t.TempDir()
	p := NewProblems(slog.New(slog.DiscardHandler), func() time.Time { return now })
	p.Set(control.JobCacheFault, os.ErrInvalid)
	p.RetryJobCache(dir)
	if len(p.List()) != 1 {
		t.Error("ended at once")
	}
	now = now.Add(jobCacheQuiet + time.Second)
	p.RetryJobCache(filepath.Join(dir, "gone"))
	if len(p.List()) != 1 {
		t.Error("ended although the disk takes nothing")
	}
	now = now.Add(jobCacheQuiet + time.Second)
	p.RetryJobCache(dir)
	if len(p.List()) != 0 {
		t.Error("does not end")
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%d files are left behind", len(left))
	}
	// What nothing meets again is forgotten.
	p.Set(control.MinionCacheFault, os.ErrInvalid)
	now = now.Add(ProblemFor + time.Second)
	if l := p.List(); len(l) != 0 {
		t.Errorf("%+v", l)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
