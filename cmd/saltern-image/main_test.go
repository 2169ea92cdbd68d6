package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"biuld"}, exitUsage, `unknown command "biuld"`},
		{[]string{"build", "--nonsense"}, exitUsage, "unknown flag"},
		{[]string{"build", "extra"}, exitUsage, "saltern-image: "},
		{[]string{"keygen"}, exitUsage, "saltern-image: "},
		{[]string{"keygen", t.TempDir() + "/none/key"}, 1, "saltern-image: "},
	} {
		var errs bytes.Buffer
		if code := run(t.Context(), c.args, &errs); code != c.code ||
			!strings.HasPrefix(errs.String(), "saltern-image: ") || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%q: exit status %d, want %d, %q", c.args, code, c.code, &errs)
		}
	}
}
