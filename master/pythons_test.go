package master

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestUsualPythons(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"salt-call": "#!/srv/venv/bin/python3.11\nimport sys\n", "salt-minion": "#! /srv/venv/bin/python3.11 -I\n", "salt-run": "\x7fELF\x02\n",
		"env": "#!/usr/bin/env python3\n", "shell": "#!/bin/sh\n", "bare": "#!\n", "relative": "#!python3\n", "empty": "", "no-end": "#!/usr/bin/python3",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	look := func(p string) (string, error) { return filepath.Join(dir, p), nil }
	if got := usualPythons(look); !slices.Equal(got[2:], []string{"/srv/venv/bin/python3.11"}) {
		t.Errorf("found %v", got)
	}
	if got := usualPythons(func(string) (string, error) { return "", errors.New("not found") }); len(got) != 2 {
		t.Errorf("without Salt: %v", got)
	}
	for _, name := range []string{"salt-run", "env", "shell", "bare", "relative", "empty", "no-end", "missing"} {
		if got := interpreter(filepath.Join(dir, name)); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
