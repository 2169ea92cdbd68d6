package master

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/value"
)

// The reactor hears what happens before its goroutine runs.
func TestReactorHearsTheStart(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "reactor:\n  - 'salt/master/*/start': /nowhere/start.sls\n")
	until(t, "reaction to the start", func() bool { return strings.Contains(r.log.String(), "/nowhere/start.sls") })
}

// TestReactorFromFileServer: a reaction's file may be one of the file server, in
// base or in another environment, as with Salt (cp.cache_file).
func TestReactorFromFileServer(t *testing.T) {
	t.Parallel()
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python with Salt's library")
	}
	srv := t.TempDir()
	for path, text := range map[string]string{"base/reactor/r.sls": "x:\n  runner.no.such_a: [{args: {a: 1}}]\n", "dev/r2.sls": "y:\n  runner.no.such_b: [{args: {a: 1}}]\n"} {
		full := filepath.Join(srv, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := startMaster(t, "saltern_renderer_python: "+python+"\nfile_roots: {base: ["+srv+"/base], dev: ["+srv+"/dev]}\n"+
		"reactor:\n  - 'my/event': ['salt://reactor/r.sls', 'salt://r2.sls?saltenv=dev', 'salt://missing.sls', 'salt://../base/reactor/r.sls']\n")
	sub := r.m.bus.Subscribe("test", 100, event.Prefix("salt/run/"))
	defer sub.Close()
	r.m.fire("my/event", value.NewMap())
	seen := map[string]bool{}
	until(t, "both reactions", func() bool {
		select {
		case e := <-sub.C:
			seen[e.Data.Str("fun")] = true
		case <-time.After(100 * time.Millisecond):
		}
		return seen["runner.no.such_a"] && seen["runner.no.such_b"]
	})
	for _, want := range []string{"path=salt://missing.sls", "path=salt://../base/reactor/r.sls"} {
		until(t, "the missing file is named: "+want, func() bool { return strings.Contains(r.log.String(), want) })
	}
}
