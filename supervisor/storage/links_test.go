package storage

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFinding26MirrorLinks: the copy of the pillars belongs to the master's
// account. A link that it puts into the place of a folder does not make root
// write, change or remove anything outside of the copy.
func TestFinding26MirrorLinks(t *testing.T) {
	source, dest, outside := t.TempDir(), t.TempDir(), t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	must(os.MkdirAll(filepath.Join(source, "srv", "pillar", "sub"), 0o755))
	must(os.WriteFile(filepath.Join(source, "srv", "pillar", "sub", "passwd"), []byte("evil"), 0o644))
	must(os.WriteFile(filepath.Join(outside, "kept"), []byte("kept"), 0o600))
	must(os.Mkdir(filepath.Join(dest, "srv"), 0o755))
	must(os.Symlink(outside, filepath.Join(dest, "srv", "pillar")))
	c := newCopier(mirrorSpec{Source: source, Dest: dest, Trees: []string{"srv/pillar"}, Any: true})
	_, err := c.runPass()

	if e, _ := os.ReadDir(outside); len(e) != 1 {
		t.Errorf("beside what was there root wrote %v", e)
	}

	if err == nil {
		if b, rerr := os.ReadFile(filepath.Join(dest, "srv", "pillar", "sub", "passwd")); rerr != nil ||
			string(b) != "evil" {
			t.Errorf("%q %v", b, rerr)
		}
	}

	// A parent that is a link: nothing is copied through it.
	dest = t.TempDir()
	must(os.Symlink(outside, filepath.Join(dest, "srv")))
	c = newCopier(mirrorSpec{Source: source, Dest: dest, Trees: []string{"srv/pillar"}, Any: true})
	if _, err := c.runPass(); err == nil {
		t.Error("root followed a link out of the copy")
	}

	if e, _ := os.ReadDir(outside); len(e) != 1 {
		t.Errorf("beside what was there root wrote %v", e)
	}
}
