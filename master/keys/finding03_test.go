package keys_test

import (
	"os"
	"path/filepath"
	"testing"

	"saltern/master/keys"
)

// TestFinding03Autoreject: if autoreject_file cannot be read, or Python reads it differently from
// Go, no key is accepted automatically.
func TestFinding03Autoreject(t *testing.T) {
	for _, x := range []struct {
		name, lines, id string
		reject, accept  bool
	}{
		{"other line", "db.*\n", "web1", false, true}, {"named", "web1\n", "web1", true, false}, {"glob", "*eb1\n", "web1", true, false}, {"plain glob", "*\n", "web1", true, false},
		{"Python's repetition", "we{,1}b1\n", "web1", true, false}, {"look-ahead", "(?!db).*\n", "web1", true, false}, {"look-ahead of others", "(?!web).*\n", "web1", false, true},
		{"no expression", "(web1\n", "web1", false, false}, {"bad escape", "web1\\z\n", "web1", false, false}, {"comment", "# (web1\n", "web1", false, true},
	} {
		path := filepath.Join(t.TempDir(), "reject")
		if err := os.WriteFile(path, []byte(x.lines), 0o600); err != nil {
			t.Fatal(err)
		}

		a := keys.NewAutosign(keys.AutosignConfig{AutoAccept: true, AutorejectFile: path})
		if r, ok := a.Reject(x.id), !a.Reject(x.id) && !a.Doubtful(x.id) &&
			a.Accept(x.id, nil); r != x.reject || ok != x.accept {
			t.Errorf("%s: rejected %v, accepted %v", x.name, r, ok)
		}
	}

	path := filepath.Join(t.TempDir(), "reject")
	if err := os.WriteFile(path, []byte("web1\n"), 0o602); err != nil {
		t.Fatal(err)
	}

	if err := os.Chmod(path, 0o602); err != nil {
		t.Fatal(err)
	}

	a := keys.NewAutosign(keys.AutosignConfig{AutoAccept: true, AutorejectFile: path})
	if !a.Doubtful("web1") {
		t.Error("accepted although the list of those to reject cannot be trusted")
	}

	a = keys.NewAutosign(keys.AutosignConfig{AutoAccept: true, AutorejectFile: path + ".none"})
	if a.Doubtful("web1") || !a.Accept("web1", nil) {
		t.Error("refused for want of a file that need not exist")
	}
}
