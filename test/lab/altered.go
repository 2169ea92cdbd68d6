package lab

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"saltern/test/source"
)

// Alteration replaces a text in a file of source, for Altered.
type Alteration struct {
	File     string // in this module, or below src of the Go distribution after "std:"
	Old, New string
}

// ClockAhead has programs live some seconds later than everybody else. Their
// timers run as ever.
func ClockAhead(seconds string) Alteration {
	return Alteration{"std:time/time.go", "	sec, nsec, mono := runtimeNow()\n",
		"	sec, nsec, mono := runtimeNow()\n	sec += " + seconds + "\n"}
}

// Altered builds our programs with parts of their source replaced, and gives
// the directory with them: what they would be like on another machine, or in
// another version. It takes a minute or two when it was not done before.
func Altered(t testing.TB, changes ...Alteration) string {
	t.Helper()
	module := source.Root(t)
	dir, replaced := Dir(t), map[string]string{}
	for i, c := range changes {
		path := filepath.Join(module, c.File)
		if name, ok := strings.CutPrefix(c.File, "std:"); ok {
			out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
			if err != nil {
				t.Fatal(err)
			}
			path = filepath.Join(strings.TrimSpace(string(out)), "src", name)
		}

		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(text), c.Old) == 0 {
			t.Fatalf("no %q in %s", c.Old, path)
		}

		to := filepath.Join(dir, strings.Repeat("x", i+1)+".go")
		replaced[path] = to
		if err := os.WriteFile(to, []byte(strings.ReplaceAll(string(text), c.Old, c.New)), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o644)
	}

	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-overlay",
		filepath.Join(dir, "overlay.json"), "-o", dir+"/", "./cmd/applianced", "./cmd/salt-master",
		"./cmd/salt")
	cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0")

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build altered programs: %v\n%s", err, out)
	}

	return dir
}
