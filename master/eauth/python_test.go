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
		v, err := Python(tt.pythons, "")(context.Background(), "pam", "ann", "secret")
		if v.OK != tt.ok || (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
}
