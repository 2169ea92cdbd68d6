package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
)

// What somebody called himself at a log-in cannot move the cursor of whoever looks.
func TestAttack26ListOfLogIns(t *testing.T) {
	evil := "\x1b[2J\x1b]0;owned\x07ann\r\n\u009b31m"
	at := time.Unix(1764000000, 0)
	var b bytes.Buffer
	if err := writeTokens(&b,
		control.Tokens{Tokens: []control.Token{
			{Name: evil, User: evil, Eauth: evil, From: evil, Node: evil, Start: at, Until: at},
			{Name: "0123456789abcdef", User: "ann", Start: at, Until: at},
		}}); err != nil {
		t.Fatal(err)
	}

	if i := strings.IndexFunc(b.String(),
		func(r rune) bool {
			return r < ' ' && r != '\n' ||
				r >= 0x7f && r < 0xa0
		}); i >= 0 || strings.Count(b.String(), "\n") != 3 {
		t.Errorf("a control character at %d of %q", i, b.String())
	}

	if !strings.Contains(b.String(), "2025-11-24 16:00:00") {
		t.Errorf("%s", b.String())
	}
}

// Which log-ins end is said unmistakably before anybody is asked.
func TestTokensRevokeUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":                             "name of one log-in, or --user",
		"0123456789abcdef --user anna": "name of one log-in, or --user",
		"0123456789abcdef --eauth pam": "--eauth goes with --user",
		"anna":                         "16 hexadecimal digits",
		"0123456789abcdef":             "To do it: --yes",
		"--user anna":                  "Ended is all log-ins of anna",
	} {
		root := rootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetIn(strings.NewReader("yes\n"))
		root.SetArgs(append([]string{"tokens", "revoke"}, strings.Fields(args)...))

		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
