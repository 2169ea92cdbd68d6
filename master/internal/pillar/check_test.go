package pillar

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/cache"
	"saltern/master/internal/fileserver/regular"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
	"saltern/test/await"
)

// peek is a module whose templates give another value in the fast way, as a fault of it would, and
// another value each time.
const peek = `
import jinja2.environment
_TIMES = []
def fast():
    f = jinja2.environment.Environment.compile
    return not dict(zip(f.__code__.co_freevars, (c.cell_contents for c in f.__closure__)))["self"].off
def times():
    _TIMES.append(1)
    import os
    return "%d-%d" % (os.getpid(), len(_TIMES))
`

// checkedGroups are the nodegroups of checkedService in Python.
var checkedGroups = value.NewMap("web", "G@role:web", "db", "G@role:db")

func checkedService(t *testing.T, each int, files map[string]string) (*Service, string, *bytes.Buffer) {
	root := tree(t, files)
	pool := renderer.New(renderer.Config{
		Python:     []string{python(t)},
		MaxWorkers: 1,
		Overrides: value.NewMap("root_dir", root, "id", "m", "extension_modules", root+"/ext",
			"cachedir", root+"/cache", "pki_dir", root+"/pki", "nodegroups", checkedGroups,
			"pillar_roots", value.NewMap("base", []any{root + "/p"})),
	})
	t.Cleanup(pool.Close)

	store, err := cache.Open(root+"/cache", 1<<20, func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}

	said := &bytes.Buffer{}
	log := slog.New(slog.NewTextHandler(said, nil))
	return NewService(ServiceConfig{
		Compiler:  New(Config{Roots: base(root + "/p"), Renderers: pool, Log: log}),
		Cache:     store,
		CheckEach: each,
		Now:       time.Now,
		Log:       log,
	}), root, said
}

func serve(t *testing.T, s *Service) *value.Map {
	t.Helper()
	p, err := s.Serve(t.Context(), Question{Request: Request{ID: "a", Grains: value.NewMap("role", "web")}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var checkedFiles = map[string]string{
	"ext/modules/peek.py": peek,
	"p/top.sls":           "base:\n  '*':\n    - good\n    - clock\n    - wrong\n    - plain\n",
	"p/good.sls":          "good: {{ grains.role }}\n",
	"p/clock.sls":         "clock: {{ salt['peek.times']() }}\n",
	"p/wrong.sls":         "secret: {{ 'wrong' if salt['peek.fast']() else 'right' }}\n",
	"p/plain.sls":         "plain: 1\n",
}

// checkUntilFault runs the checks of a service until one has found a fault.
func checkUntilFault(t *testing.T, s *Service) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.RunChecks(ctx)
	}()
	await.That(t, "a fault", func() bool { return s.CheckFault() != nil })
	stop()
	<-ended
}

// TestCheckSetsFileAside: a file with another value in the fast way is found, and rendered as Salt
// does until it changes. One with another value each time is not found. Nothing of a value is in
// the log.
func TestCheckSetsFileAside(t *testing.T) {
	s, root, said := checkedService(t, 1, checkedFiles)
	if got := serve(t, s).Str("secret"); got != "wrong" {
		t.Fatalf("%q: the module shows no difference", got)
	}

	checkUntilFault(t, s)

	wrong := filepath.Join(root, "p/wrong.sls")
	if text := s.CheckFault().Error(); !strings.HasPrefix(text, wrong+" gives other values") {
		t.Error(text)
	}

	p := serve(t, s)
	if p.Str("secret") != "right" || p.Str("good") != "web" || p.Value("plain") != int64(1) {
		t.Errorf("after the check: %s", plainText(p))
	}

	if text := said.String(); strings.Contains(text, "right") || strings.Count(text, "rendered as Salt does") != 1 {
		t.Error(text)
	}

	if err := os.WriteFile(wrong, []byte("secret: {{ 'mended ' ~ salt['peek.fast']() }}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := serve(t, s).Str("secret"); got != "mended True" || s.CheckFault() != nil {
		t.Errorf("after the file has changed: %q, %v", got, s.CheckFault())
	}
}

// TestCheckStartsNoPython: a node whose pillars need no Python has none for the sake of checks.
func TestCheckStartsNoPython(t *testing.T) {
	s, _, _ := checkedService(t, 1, map[string]string{"p/top.sls": "base:\n  '*':\n    - plain\n", "p/plain.sls": "plain: 1\n"})
	serve(t, s)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.RunChecks(ctx)
	}()

	await.That(t, "a skipped check", func() bool { return s.Stats().Checks.Skipped == 1 })
	stop()
	<-ended
	if starts := s.cfg.Compiler.cfg.Renderers.Stats().Starts; starts != 0 {
		t.Errorf("Python was started %d times", starts)
	}
}

// TestChecksAreChosen: one pillar in CheckEach is chosen, and no more than one waits.
func TestChecksAreChosen(t *testing.T) {
	for _, c := range []struct {
		each            int
		offered, chosen int
		skipped         uint64
	}{
		{each: 0, offered: 999, chosen: 0},
		{each: 0, offered: 1000, chosen: 1},
		{each: 10, offered: 35, chosen: 1, skipped: 2},
		{each: -1, offered: 5000, chosen: 0},
	} {
		checks := newChecks(c.each)
		for range c.offered {
			checks.offer(Request{})
		}
		if len(checks.chosen) != c.chosen || checks.skipped.Load() != c.skipped {
			t.Errorf("1 in %d of %d: %d chosen, %d skipped", c.each, c.offered, len(checks.chosen), checks.skipped.Load())
		}
	}
}

// TestDistrustIsBounded: with too many files, all files are rendered as Salt does. Files that are
// gone no longer count.
func TestDistrustIsBounded(t *testing.T) {
	d := &distrusted{}
	dir := t.TempDir()
	for i := range maxDistrusted + 1 {
		file := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if d.has("another", regular.ID{}) {
			t.Fatalf("after %d files all are distrusted", i)
		}
		if err := d.add(file); err != nil {
			t.Fatal(err)
		}
	}

	if !d.has("another", regular.ID{}) {
		t.Error("another file is trusted")
	}

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	d.dropMissing()
	if len(d.files) != 0 || d.fault() == nil {
		t.Errorf("%d files are left, the fault is %v", len(d.files), d.fault())
	}
}
