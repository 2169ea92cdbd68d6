package eauth

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakePython is a shell script in the place of a Python.
func fakePython(t *testing.T, name, body string) string {
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPythonsAreTriedInOrder(t *testing.T) {
	bare := fakePython(t, "bare", `echo "ModuleNotFoundError: No module named 'salt'" >&2; exit 1`)
	yes := fakePython(t, "yes", `cat >/dev/null; echo '{"ok": true, "groups": ["ops"]}'`)
	broken := fakePython(t, "broken", `echo boom >&2; exit 1`)
	endless := fakePython(t, "endless", `exec yes`)
	for name, tt := range map[string]struct {
		pythons []string
		ok      bool
		fault   string
	}{
		"first has no Salt":        {[]string{"/nowhere/python", bare, yes}, true, ""},
		"first answers":            {[]string{yes, broken}, true, ""},
		"a fault is no invitation": {[]string{broken, yes}, false, "boom"},
		"none has Salt":            {[]string{bare}, false, "no module named salt"},
		"an endless answer":        {[]string{endless}, false, "more than is accepted"},
		"none is there":            {[]string{"/nowhere/python"}, false, "none was found"},
	} {
		v, err := Python(tt.pythons, "", "")(context.Background(), "pam", "ann", "secret")
		if v.OK != tt.ok || (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
}

// Neither the working directory nor PYTHONPATH says what a login imports.
func TestFinding20Login(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to test logins")
	}
	hostile := t.TempDir()
	for _, name := range []string{"json.py", "msgpack.py", "salt.py"} {
		if err := os.WriteFile(filepath.Join(hostile, name), []byte("raise ImportError('hostile')\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "master")
	if err := os.WriteFile(file, []byte("root_dir: "+t.TempDir()+"\nexternal_auth: {auto: {ann: [test.ping]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(hostile)
	t.Setenv("PYTHONPATH", hostile)
	v, err := Python([]string{python}, file, "")(t.Context(), "auto", "ann", "x")
	if err != nil || !v.OK {
		t.Errorf("login: %v, %v", v, err)
	}
}
