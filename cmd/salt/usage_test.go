package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What makes no sense on a command line ends with the same exit code and the
// same words as with Salt's own tools.
func TestWrongUsageIsSalts(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python with Salt's library")
	}

	h := newHouse(t, nil, "")
	for _, c := range []struct {
		words []string
		code  int
	}{
		{[]string{"salt", "--nosuch"}, 64}, {[]string{"salt", "-t", "x", "a", "test.ping"}, 64}, {[]string{"salt"}, 42}, {[]string{"salt", "a"}, 42},
		{[]string{"salt-key", "--nosuch"}, 64}, {[]string{"salt-key", "-l", "bad"}, 64}, {[]string{"salt-key", "-a"}, 64},
		{[]string{"salt-run", "--nosuch"}, 64}, {[]string{"salt-run", "-d", "a", "b"}, 64}, {[]string{"salt-cp", "x"}, 64},
		{[]string{"salt", "-a", "nosuch", "a", "test.ping"}, 2},
	} {
		salts := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(python), c.words[0]),
			append([]string{"-c", h.dir}, c.words[1:]...)...)
		var out, errs bytes.Buffer
		salts.Stdout, salts.Stderr = &out, &errs
		err := salts.Run()
		if ee := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ee) {
			t.Fatal(err)
		}

		code := h.run(c.words[0], c.words[1:]...)
		if was := salts.ProcessState.ExitCode(); code != was || code != c.code {
			t.Errorf("%q: exit code %d, Salt's %d, want %d", c.words, code, was, c.code)
		}

		if ours, theirs := lastLine(h.errs), lastLine(errs.String()); ours != theirs {
			t.Errorf("%q: %q, Salt says %q", c.words, ours, theirs)
		}

		if c.code == 2 && h.out != out.String() {
			t.Errorf("%q: %q, Salt says %q", c.words, h.out, &out)
		}
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
