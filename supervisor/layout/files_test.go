package layout

import (
	"os"
	"path/filepath"
	"testing"

	"saltern/supervisor/settings"
)

// TestLinkFiles: the link leads to the storage of now, also after a move and after a
// link that was half made (M2).
func TestLinkFiles(t *testing.T) {
	s := settings.Default("n1")
	s.RuntimeDir = t.TempDir()
	for _, path := range []string{"/srv/cluster", "/srv/cluster", "/var/lib/saltern/cluster"} {
		s.Storage.Path = path
		if err := os.WriteFile(filepath.Join(s.RuntimeDir, FilesLink+".new"), nil, 0o600); err != nil {
			t.Fatal(err)
		}

		if err := LinkFiles(&s); err != nil {
			t.Fatal(err)
		}

		if got, err := os.Readlink(filepath.Join(s.RuntimeDir, FilesLink)); err != nil || got != path+"/srv" {
			t.Errorf("%q %v", got, err)
		}
	}

	if d := settings.Default("n1"); Files != filepath.Join(d.RuntimeDir, FilesLink) {
		t.Errorf("the image's links lead to %s, the node's is in %s", Files, d.RuntimeDir)
	}
}
