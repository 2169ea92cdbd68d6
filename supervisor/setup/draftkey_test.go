package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// keysIn are the private keys below a directory.
func keysIn(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}

		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "PRIVATE KEY") {
			out = append(out, path)
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// TestNoKeyBeforeTheAnswersAreConfirmed: a machine on which the wizard has made its checks
// and was left, or whose set-up has stopped at them, has no key that a copy of it would have
// too; when it is set up the key is the one of the checks (F8).
func TestNoKeyBeforeTheAnswersAreConfirmed(t *testing.T) {
	w := newMachine(t)
	m, _ := w.boot()
	form := w.answers()
	join := Answers{
		Mode:    Join,
		Node:    "n2",
		Address: "127.0.70.9",
		Peers:   []string{"127.0.70.250"},
		Secret:  "correct-horse-battery-staple",
		Storage: Storage{Kind: settings.DirectoryStorage, Path: w.dir},
	}

	stops := w.answers()
	stops.Storage = Storage{Kind: settings.DirectoryStorage, Path: w.path("not", "mounted")}

	for name, a := range map[string]Answers{"form": form, "join": join} {
		if _, err := m.Preflight(t.Context(), a); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}

	if err := m.Start(t.Context(), "", stops); err != nil {
		t.Fatal(err)
	}

	reaches(t, m, "stopped", func(p Progress) bool { return p.Failure != nil })
	if err := m.Back(""); err != nil {
		t.Fatal(err)
	}

	if keys := keysIn(t, w.dir); len(keys) > 0 {
		t.Errorf("keys before the set-up: %v", keys)
	}

	checked, err := m.draftIdentity()
	if err != nil {
		t.Fatal(err)
	}

	if err := m.Start(t.Context(), "", form); err != nil {
		t.Fatal(err)
	}

	reaches(t, m, "ready", state(status.SetupReady))
	id, err := nodeapi.ReadIdentity(w.path("data", "node"))
	if err != nil {
		t.Fatal(err)
	}

	k, err := nodes.OpenKeeper(w.path("data"), "")
	if err != nil {
		t.Fatal(err)
	}

	table := k.Table()
	if self, ok := table.ByCertificate(id.Hash); !ok || self.Name != "n1" || id.Hash != checked.Hash {
		t.Errorf("the key of the node is %.8s, that of the checks %.8s: %+v", id.Hash, checked.Hash, table.Nodes)
	}
}
