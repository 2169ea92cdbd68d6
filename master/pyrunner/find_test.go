package pyrunner

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"saltern/test/check"
)

func TestUsualPythons(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"salt-call": "#!/srv/venv/bin/python3.11\nimport sys\n", "salt-minion": "#! /srv/venv/bin/python3.11 -I\n", "salt-run": "\x7fELF\x02\n",
		"env": "#!/usr/bin/env python3\n", "shell": "#!/bin/sh\n", "bare": "#!\n", "relative": "#!python3\n", "empty": "", "no-end": "#!/usr/bin/python3",
	} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}

	look := func(p string) (string, error) { return filepath.Join(dir, p), nil }
	if got := Usual(look); !slices.Equal(got[2:], []string{"/srv/venv/bin/python3.11"}) {
		t.Errorf("found %v", got)
	}

	if got := Usual(func(string) (string, error) { return "", errors.New("not found") }); len(got) != 2 {
		t.Errorf("without Salt: %v", got)
	}

	for _, name := range []string{"salt-run", "env", "shell", "bare", "relative", "empty", "no-end", "missing"} {
		if got := interpreter(filepath.Join(dir, name)); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// The interpreter of a salt-run is the one that its first lines name, or the one in the same
// folder.
func TestPythonOf(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		check.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check.Must(t, os.WriteFile(path, []byte(text), 0o755))
		return path
	}

	write("onedir/bin/python3", "")
	write("onedir/salt-run", "#!/bin/sh\n\"exec\" \"`dirname $0`/bin/python3\" \"$0\" \"$@\"\n")
	check.Must(t, os.Symlink(filepath.Join(dir, "onedir/salt-run"), filepath.Join(dir, "linked")))
	for path, want := range map[string]string{
		write("venv/salt-run", "#!/srv/venv/bin/python3\n"):                                              "/srv/venv/bin/python3",
		write("long/salt-run", "#!/bin/sh\n'''exec' \"/srv/a long/one/python3\" \"$0\" \"$@\"\n' '''\n"): "",
		write("pip/salt-run", "#!/bin/sh\n'''exec' /srv/long/python3 \"$0\" \"$@\"\n' '''\n"):            "/srv/long/python3",
		filepath.Join(dir, "linked"):                     filepath.Join(dir, "onedir/bin/python3"),
		write("wrapper/salt-run", "#!/bin/sh\nexec x\n"): "",
		filepath.Join(dir, "onedir/bin/python3"):         filepath.Join(dir, "onedir/bin/python3"),
		filepath.Join(dir, "missing"):                    "",
	} {
		if got := Of(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
