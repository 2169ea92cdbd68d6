package functions

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/test/check"
)

// A salt-run whose Python cannot be found is told of at the start.
func TestSaltRunWithoutPython(t *testing.T) {
	wrapper := filepath.Join(t.TempDir(), "salt-run")
	check.Must(t, os.WriteFile(wrapper, []byte("#!/bin/sh\nexec elsewhere \"$@\"\n"), 0o755))
	r := mastertest.Start(t, "saltern_salt_run: "+wrapper+"\n")
	if text := r.Log.String(); !strings.Contains(text,
		"saltern_salt_run names a program whose Python cannot be found") || !strings.Contains(text,
		"set saltern_renderer_python") {
		t.Errorf("the log does not say what to do:\n%s", text)
	}
}
