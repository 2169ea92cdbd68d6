package functions

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/mastertest"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/check"
)

// TestPillarDiff: the tool gets the difference, without its secrets. Nobody else does: neither the
// readers of events nor the job cache, and nothing remains on the disk.
func TestPillarDiff(t *testing.T) {
	r := mastertest.Start(t, "pillar_roots: {base: [%DIR%/pillar]}\nsaltern_diff_folders: [%DIR%]\n")
	for _, side := range []string{"pillar", "branch"} {
		dir := r.Path(side)
		check.Must(t, os.MkdirAll(dir, 0o755))
		check.Must(t, os.WriteFile(filepath.Join(dir, "top.sls"), []byte("base: {'*': [x]}\n"), 0o644))
		check.Must(t, os.WriteFile(filepath.Join(dir, "x.sls"), []byte("side: "+side+"\npassword: M4RK-"+side+"\n"), 0o644))
	}

	r.AcceptedMinion("min1", "min6").Pillar("grains", value.NewMap("os", "Debian"))
	c := connectSaltRun(r, "root")
	r.ListenToBus()
	defer r.Bus.Close()
	ask := func(form string) *value.Map {
		t.Helper()
		data, err := c.Runner(t.Context(), "pillar.diff", nil,
			value.NewMap("folder", r.Path("branch"), "format", form), nil, func(string, *value.Map) {})
		check.Must(t, err)
		return data.Map("return")
	}

	answer := ask("")
	if text := runner.JSON(answer, false); !strings.Contains(text, `"path": "side"`) ||
		!strings.Contains(text, `"path": "password", "change": "changed", "secret": true`) || strings.Contains(text, "M4RK") {
		t.Errorf("%s", text)
	}
	if text := ask("text").Str("text"); !strings.Contains(text, `~ side: "pillar" → "branch"`) || strings.Contains(text, "M4RK") {
		t.Errorf("%s", text)
	}
	if text := ask("junit").Str("text"); !strings.Contains(text, `<testsuite name="pillar.diff" tests="1" failures="1"`) {
		t.Errorf("%s", text)
	}

	data, err := c.Runner(t.Context(), "pillar.readers", nil, value.NewMap("key", "pass*"), nil, func(string, *value.Map) {})
	check.Must(t, err)
	if text := runner.JSON(data.Map("return"), false); !strings.Contains(text, `"readers": 1`) || strings.Contains(text, "M4RK") {
		t.Errorf("%s", text)
	}

	for _, e := range r.NewEvents() {
		if text := runner.JSON(e.Data, false); strings.Contains(text, "M4RK") || strings.Contains(text, `"side"`) || strings.Contains(text, `"readers"`) {
			t.Errorf("event %s: %s", e.Tag, text)
		}
	}
	check.Must(t, filepath.WalkDir(r.Path(), func(path string, d os.DirEntry, err error) error {
		planted := strings.HasPrefix(path, r.Path("pillar")) || strings.HasPrefix(path, r.Path("branch"))
		served := strings.Contains(path, "/minions/") // the pillar that the minion has got
		if err != nil || d.IsDir() || planted || served {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), "M4RK-branch") {
			t.Errorf("%s has a secret", path)
		}
		return nil
	}))
}

// TestPillarDiffEndsWithItsCaller: a comparison whose caller leaves makes room for the next one.
func TestPillarDiffEndsWithItsCaller(t *testing.T) {
	python := mastertest.SaltPython(t)
	r := mastertest.Start(t, "pillar_roots: {base: [%DIR%/pillar]}\nsaltern_diff_folders: [%DIR%]\nsaltern_renderer_python: "+python+"\n")
	for side, text := range map[string]string{
		"pillar": "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}\n",
		"branch": "x: 2\n",
	} {
		dir := r.Path(side)
		check.Must(t, os.MkdirAll(dir, 0o755))
		check.Must(t, os.WriteFile(filepath.Join(dir, "top.sls"), []byte("base: {'*': [x]}\n"), 0o644))
		check.Must(t, os.WriteFile(filepath.Join(dir, "x.sls"), []byte(text), 0o644))
	}
	_, err := r.Parts.Cache.Set("grains", "min1", value.NewMap("os", "Debian"))
	check.Must(t, err)
	r.AcceptedMinion("min1", "min6")

	ctx, leave := context.WithTimeout(t.Context(), 3*time.Second)
	defer leave()
	c := connectSaltRun(r, "root")
	_, err = c.Runner(ctx, "pillar.diff", nil, value.NewMap("folder", r.Path("branch")), nil, func(string, *value.Map) {})
	if err == nil {
		t.Error("it has ended before its caller left")
	}
	c.Close()

	check.Must(t, os.WriteFile(filepath.Join(r.Path("pillar"), "x.sls"), []byte("x: 1\n"), 0o644))
	began := time.Now()
	data, err := connectSaltRun(r, "root").Runner(t.Context(), "pillar.diff", nil,
		value.NewMap("folder", r.Path("branch")), nil, func(string, *value.Map) {})
	check.Must(t, err)
	if took := time.Since(began); data.Map("return").Value("code") != int64(1) || took > 15*time.Second {
		t.Errorf("after %v: %s", took, runner.JSON(data, false))
	}
}
