package storage

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A brick is taken without what GlusterFS keeps in it; a directory that is no
// copy of a cluster's data is refused.
func TestTakeBrick(t *testing.T) {
	brick, dest := t.TempDir(), filepath.Join(t.TempDir(), "cluster.recovering")
	text, err := json.Marshal(recoverSpec{brick, dest, filepath.Join(t.TempDir(), "i.json")})
	if err != nil {
		t.Fatal(err)
	}

	take := func() string {
		var out, errs bytes.Buffer
		if code := recoverChild([]string{string(text)}, strings.NewReader("{}\n"), &out, &errs); code != 0 {
			t.Fatalf("%d: %s", code, &errs)
		}
		return out.String()
	}
	if out := take(); !strings.Contains(out, `"error"`) || exists(dest) {
		t.Errorf("an empty directory: %s", out)
	}

	files := map[string]string{
		"pki/cluster.pem":    "key",
		"pki/minions/web1":   "pub",
		"cache/jobs/a/1.log": "job",
		"srv/salt/top.sls":   "base:",
		".glusterfs/00/01/x": "inner",
		"nodes/n1/probe/a":   "probe",
	}

	for name, content := range files {
		path := filepath.Join(brick, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for range 2 { // a second time after a power cut
		if out := take(); strings.Contains(out, `"error"`) {
			t.Fatal(out)
		}
	}

	for name, content := range files {
		b, err := os.ReadFile(filepath.Join(dest, name))
		if name[0] == '.' || name[0] == 'n' {
			if err == nil {
				t.Errorf("%s was taken", name)
			}
		} else if err != nil || string(b) != content {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}

	if fi, err := os.Stat(filepath.Join(dest, "nodes")); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("nodes: %v %v", fi, err)
	}
}
