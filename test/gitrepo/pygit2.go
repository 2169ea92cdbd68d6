package gitrepo

import (
	"path/filepath"
	"testing"
)

// Pygit2 is a variable of the environment with which a Python that has Salt has pygit2
// too. It looks beside the release, where `make deps` puts it.
func Pygit2(t testing.TB, python string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(filepath.Dir(python), "../../pygit2/lib/python3*/site-packages"))
	if err != nil || len(found) == 0 {
		t.Skip("SKIPPED: there is no pygit2 beside Salt's release (make deps)")
	}
	return "PYTHONPATH=" + found[0]
}
