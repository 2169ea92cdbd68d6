// Package pins checks that what the tests install from elsewhere is pinned.
package pins

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFinding28Hashes: pip installs Salt for the tests by version and hash only.
func TestFinding28Hashes(t *testing.T) {
	script, err := os.ReadFile("../../scripts/deps")
	if err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(string(script)) {
		if strings.Contains(line, "pip\" install") && !strings.Contains(line, "--dry-run") &&
			!(strings.Contains(line, "--require-hashes") && strings.Contains(line, "--no-deps")) {
			t.Errorf("scripts/deps installs without hashes: %s", strings.TrimSpace(line))
		}
	}

	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}

	files, _ := filepath.Glob("../../scripts/requirements/salt-*.txt")
	if len(files) < 3 {
		t.Errorf("only %v", files)
	}

	pin := regexp.MustCompile(`^[A-Za-z0-9._-]+==[^ ]+ \\\n    --hash=sha256:[0-9a-f]{64}$`)
	for _, f := range files {
		version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "salt-"), ".txt")
		if !strings.Contains(string(makefile), version) {
			t.Errorf("%s is of no release that the Makefile tests", f)
		}

		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}

		_, list, _ := strings.Cut(string(text), "lock "+version+"\n")
		n := 0
		for _, entry := range regexp.MustCompile(`(?m)^[^ #].*\n.*$`).FindAllString(list, -1) {
			n++
			if !pin.MatchString(entry) {
				t.Errorf("%s: %q", f, entry)
			}
		}

		if n < 50 || 2*n != strings.Count(list, "\n") || !strings.Contains(list, "salt=="+version+" ") {
			t.Errorf("%s: %d packages of %d lines", f, n, strings.Count(list, "\n"))
		}
	}
}
