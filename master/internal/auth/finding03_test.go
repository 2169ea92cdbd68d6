package auth

import (
	"os"
	"path/filepath"
	"testing"

	"saltern/master/keys"
)

// TestFinding03AutorejectDecides: with a list of those to reject that cannot
// be read a new key waits for the administrator.
func TestFinding03AutorejectDecides(t *testing.T) {
	for lines, want := range map[string]bool{"db1\n": true, "(web\n": false} {
		path := filepath.Join(t.TempDir(), "reject")
		if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}

		for name, cfg := range map[string]keys.AutosignConfig{
			"auto_accept":   {AutoAccept: true},
			"autosign_file": {AutosignFile: filepath.Join(t.TempDir(), "accept")},
		} {
			cfg.AutorejectFile = path
			if cfg.AutosignFile != "" {
				if err := os.WriteFile(cfg.AutosignFile, []byte("*\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			s := &Service{
				cfg:  Config{Autosign: keys.NewAutosign(cfg), MaxWait: defaultMaxWait},
				disk: newGate(1, 1, defaultMaxWait),
			}

			if got, err := s.autosign(t.Context(), request{id: "web1"}); err != nil || got != want {
				t.Errorf("%q with %s: accepted %v (%v)", lines, name, got, err)
			}
		}
	}
}
