package main

import (
	"bytes"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

func TestExitCodes(t *testing.T) {
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte("publish_port: 70000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"--help"}, exitOK, "Usage: salt-master", ""},
		{[]string{"--version"}, exitOK, "salt-master ", ""},
		{[]string{"--nonsense"}, exitUsage, "", "unknown flag"},
		{[]string{"one"}, exitUsage, "", `unexpected argument "one"`},
		{[]string{"-c", dir}, exitConfig, "", "70000 is not a port"},
		{[]string{"-c", dir, "-u", self.Username}, exitConfig, "", "70000 is not a port"},
		{[]string{"-c", dir, "-u", "no-such-user"}, exitUsage, "", "does not change its user"},
	} {
		var out, errs bytes.Buffer
		if code := run(c.args, &out, &errs); code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.errs) {
			t.Errorf("%q: code %d, want %d\n%s%s", c.args, code, c.code, &out, &errs)
		}
	}
}
