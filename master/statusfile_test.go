package master

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWriteStatusFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	read := func() (s Status) {
		t.Helper()
		b, err := os.ReadFile(path)
		must(t, err)
		must(t, json.Unmarshal(b, &s))
		return s
	}
	long, err := json.Marshal(Status{ID: strings.Repeat("x", 500), Accepted: 1})
	must(t, err)
	must(t, writeStatusFile(path, long))
	if s := read(); s.Accepted != 1 {
		t.Errorf("%+v", s)
	}
	// No new file can be made: the old one is written over, whole.
	must(t, os.Mkdir(path+".new", 0o700))
	must(t, os.WriteFile(filepath.Join(path+".new", "x"), nil, 0o600))
	for i, text := range []string{"short", strings.Repeat("y", 900), "again"} {
		b, err := json.Marshal(Status{ID: text, Accepted: i + 2})
		must(t, err)
		must(t, writeStatusFile(path, b))
		if s := read(); s.ID != text || s.Accepted != i+2 {
			t.Errorf("%.20q: %+v", text, s)
		}
	}
	must(t, os.Remove(path))
	if err := writeStatusFile(path, long); err == nil {
		t.Error("no file could be written, and no error")
	}
}

// A job cache that could not be written to is well again when the disk is,
// also when no minion returns anything.
func TestJobCacheProblemEnds(t *testing.T) {
	r := startMaster(t, "")
	r.m.problems.set("job cache", os.ErrInvalid)
	has := func() bool {
		for _, p := range r.m.problems.list() {
			if p.What == "job cache" {
				return true
			}
		}
		return false
	}
	r.m.retryJobCache()
	if !has() {
		t.Error("ended at once")
	}
	r.m.problems.mu.Lock()
	p := r.m.problems.m["job cache"]
	p.Last = p.Last.Add(-jobCacheQuiet - time.Second)
	r.m.problems.m["job cache"] = p
	r.m.problems.mu.Unlock()
	r.m.retryJobCache()
	if has() {
		t.Error("does not end")
	}
	// The running master may be trying as well at this moment.
	until(t, "nothing is left behind", func() bool {
		left, _ := filepath.Glob(r.path("cache", "jobs", ".try-*"))
		return len(left) == 0
	})
	// What nothing meets again is forgotten.
	r.m.problems.set("minion cache", os.ErrInvalid)
	r.m.problems.mu.Lock()
	p = r.m.problems.m["minion cache"]
	p.Last = p.Last.Add(-problemFor - time.Second)
	r.m.problems.m["minion cache"] = p
	r.m.problems.mu.Unlock()
	if l := r.m.problems.list(); len(l) != 0 {
		t.Errorf("%+v", l)
	}
}
