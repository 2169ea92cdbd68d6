package main

import (
	"io"
	"os"
	"strings"
	"testing"
)

// TestUsage: what is mistyped is not taken for a healthy node.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"statsu"}, exitUsage, "did you mean: applianced status"},
		{[]string{"frobnicate"}, exitUsage, "applianced --help lists them"},
		{[]string{"lb", "foo"}, exitUsage, `unknown verb "foo"`},
		{[]string{"lb", "statu"}, exitUsage, "did you mean: applianced lb status"},
		{[]string{"config", "chekc"}, exitUsage, "did you mean: applianced config check"},
		{[]string{"secret", "rotat"}, exitUsage, "did you mean: applianced secret rotate"},
		{[]string{"status", "extra"}, exitUsage, "applianced status --help"},
		{[]string{"status", "--nonsense"}, exitUsage, "applianced status --help"},
		{[]string{"drain"}, exitUsage, "applianced drain --help"},
		{[]string{"logs"}, exitUsage, "name one service: master, lb, api, vip; see: applianced logs --help"},
		{[]string{"logs", "foo"}, exitUsage, `unknown service "foo"; there are: master, lb, api, vip`},
		{[]string{"restart", "foo"}, exitUsage, `unknown service "foo"; there are: master, lb, api, vip`},
		{[]string{"logs", "lb", "--since", "yesterday"}, exitUsage, "neither a duration"},
		{[]string{"config", "--help"}, 0, ""},
		{nil, 0, ""},
	} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}

		stderr, stdout := os.Stderr, os.Stdout
		os.Stderr = write
		os.Stdout, _ = os.Open(os.DevNull)
		code := run(t.Context(), c.args)
		os.Stderr, os.Stdout = stderr, stdout
		write.Close()
		text, _ := io.ReadAll(read)
		if code != c.code || !strings.Contains(string(text), c.says) || strings.Count(string(text), "\n") > 1 {
			t.Errorf("applianced %s: exit status %d, %q", strings.Join(c.args, " "), code, text)
		}
	}
}
