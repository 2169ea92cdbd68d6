package master

import (
	"os"
	"path/filepath"
	"testing"

	"saltern/master/msgpack"
)

// A built-in runner that lacks a part of the master is left to Python's
// salt-run, as one that is not built in.
func TestRunnersLeftToPython(t *testing.T) {
	script := filepath.Join(t.TempDir(), "salt-run")
	must(t, os.WriteFile(script, []byte("#!/bin/sh\nfor last; do :; done\necho \"{\\\"asked\\\": \\\"$last\\\"}\"\n"), 0o755))
	r := startMaster(t, "saltern_salt_run: "+script+"\n")
	for _, fun := range []string{"pillar.show_top", "state.orchestrate"} {
		got, err := r.m.runners.call(t.Context(), fun, nil, msgpack.NewMap("minion", "web1"))
		m, _ := got.(*msgpack.Map)
		if err != nil || m.Str("asked") != "minion=web1" {
			t.Errorf("%s: %v %v", fun, got, err)
		}
	}
}
