package main

import (
	"strings"
	"testing"
)

func TestReaders(t *testing.T) {
	say := func(text string) string { return "printf '%s' '" + text + "'" }
	for _, tt := range []struct {
		name   string
		script string
		args   []string
		code   int
		out    string // a part of what is printed
		errs   string // a part of the errors and of what was asked
	}{
		{"a key", say(`{"text": "WEB1\n", "code": 0}`), []string{"db:password"}, 0, "WEB1\n", `format=text`},
		{"nobody", say(`{"text": "0 of 3\n", "code": 1}`), []string{"nosuch"}, 1, "0 of 3\n", `key="nosuch"`},
		{"a secret", say(`{"what": "x", "code": 2}`), []string{"--file", "db", "--block", "2", "--json"}, 2, `"what": "x"`, `block="2"`},
		{"a target", say(`{"text": "", "code": 0}`), []string{"x", "--tgt-type", "grain"}, 0, "", `tgt_type="grain"`},
		{"the master is away", "exit 1", []string{"x"}, 2, "", "ask the master"},
		{"a refusal", say(`"Passed invalid arguments"`), []string{"x"}, 2, "", "Passed invalid"},
		{"nothing to find", say("{}"), nil, -1, "", "name a key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := runVerb(t, readersCommand, tt.script, append([]string{"readers"}, tt.args...)...)
			if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errs, tt.errs) {
				t.Errorf("code %d\n%s\n%s", code, out, errs)
			}
		})
	}
}
