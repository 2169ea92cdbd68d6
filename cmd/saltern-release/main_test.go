package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"saltern/image/bundle"
)

// called runs the program in the root of the tree, where its documents are.
func called(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	t.Chdir("../..")
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, errs.String()
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"check", "1.2.3-rc.1"}, 0, ""},
		{[]string{"check", "999.0.0", "--trial"}, 0, ""},
		{[]string{"check", "999.0.0"}, 1, "CHANGELOG.md"},
		{[]string{"check", "v1.2.3"}, 1, "VERSION=v1.2.3: a release is called 1.2.3"},
		{[]string{"check"}, 1, "saltern-release: "},
		{[]string{"chekc"}, 1, "unknown command"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			if code, says := called(t, c.args...); code != c.code || !strings.Contains(says, c.says) {
				t.Errorf("exit status %d, want %d, %q", code, c.code, says)
			}
		})
	}
}

// TestFinish: beside the files of a release come notes, the modules of the programs
// with their licenses, and digests of it all; twice the same.
func TestFinish(t *testing.T) {
	self, err := os.Executable() // a Go program with modules
	if err != nil {
		t.Fatal(err)
	}

	env, err := exec.Command("go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}

	from := strings.Fields(string(env))
	work := t.TempDir()
	bin := filepath.Join(work, "bin/amd64")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}

	for _, p := range programs {
		if err := os.Symlink(self, filepath.Join(bin, p)); err != nil {
			t.Fatal(err)
		}
	}

	private, _, err := bundle.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}

	key := filepath.Join(work, "key.pem")
	if err := os.WriteFile(key, private, 0o600); err != nil {
		t.Fatal(err)
	}

	args := []string{"--version", "1.2.3-rc.1", "--commit", "abc1234", "--epoch", "1750000000", "--programs",
		filepath.Join(work, "bin"), "--arch", "amd64",
		"--modules", from[0], "--goroot", from[1], "--sign", key}
	var made [2]map[string]string
	for i, dir := range []string{filepath.Join(work, "one"), filepath.Join(work, "two")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}

		t.Run(filepath.Base(dir), func(t *testing.T) {
			if code, says := called(t, append([]string{"finish", dir}, args...)...); code != 0 {
				t.Fatal(says)
			}
		})

		made[i] = map[string]string{}
		for _, name := range []string{"RELEASE-NOTES.md", "LICENSES.txt", "saltern-1.2.3-rc.1.spdx.json",
			"SHA256SUMS", "SHA256SUMS.sig"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}

			made[i][name] = string(b)
			if i > 0 && made[0][name] != made[1][name] {
				t.Errorf("%s is another the second time", name)
			}
		}
	}

	for name, want := range map[string]string{
		"RELEASE-NOTES.md": "From commit abc1234 of 15 June 2025", "LICENSES.txt": "==== github.com/spf13/cobra v", "SHA256SUMS": "  RELEASE-NOTES.md\n",
	} {
		if !strings.Contains(made[0][name], want) {
			t.Errorf("%s is without %q:\n%s", name, want, made[0][name])
		}
	}

	var doc struct {
		Packages []struct{ Name, VersionInfo, LicenseDeclared string }
	}
	if err := json.Unmarshal([]byte(made[0]["saltern-1.2.3-rc.1.spdx.json"]), &doc); err != nil {
		t.Fatal(err)
	}

	declared := map[string]string{}
	for _, p := range doc.Packages {
		declared[p.Name] = p.LicenseDeclared
	}

	for name, want := range map[string]string{
		"saltern":                "Apache-2.0",
		"std":                    "BSD-3-Clause",
		"github.com/spf13/cobra": "Apache-2.0",
	} {
		if declared[name] != want {
			t.Errorf("%s is declared %q, want %q", name, declared[name], want)
		}
	}

	t.Run("no programs", func(t *testing.T) {
		if code, says := called(t, append([]string{"finish", work}, append(args, "--arch", "arm64")...)...); code != 1 || !strings.Contains(says, "make packages-parts ARCH=arm64") {
			t.Errorf("%d %s", code, says)
		}
	})
}
