package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/saltyaml"
	"saltern/master/value"
	"saltern/test/check"
)

func option(t testing.TB, yaml string) []any {
	t.Helper()
	v, err := saltyaml.Decode([]byte(yaml), "test")
	check.Must(t, err)
	list, _ := v.([]any)
	return list
}

func TestParse(t *testing.T) {
	all, faults := Parse(option(t, `
- name: ops
  on: [failed, gone]
  minions: 'web*'
  functions: [state.*]
  target: 'G@role:web'
  gone_for: 600
  quiet: 22:00-06:30
  limit: 5
  to:
    - url: https://hooks.example.com/T0/secret
      form: slack
    - mail: [ops@example.com, night@example.com]
      server: mail.example.com:587
      from: salt@example.com
      user: salt
      password_file: /etc/salt/mail
    - syslog: udp://127.0.0.1:5514/LOG_LOCAL0
- on: node
  codes: SCA-4*
  to: {syslog: file:///dev/log}
`))
	if len(faults) > 0 || len(all) != 2 {
		t.Fatal(faults, all)
	}

	r := all[0]
	if r.GoneFor != 10*time.Minute || r.Limit != 5 || r.TargetType != "compound" || len(r.To) != 3 || r.Dedupe != time.Hour {
		t.Errorf("%+v", r)
	}
	if r.To[0].Name != "ops/1" || r.To[0].Web.Form != Slack || r.To[1].Mail.TLS != StartTLS || r.To[2].Syslog.Facility != 16 {
		t.Errorf("%+v", r.To)
	}
	if all[1].Name != "rule2" {
		t.Errorf("the second rule is called %s", all[1].Name)
	}

	for _, tt := range []struct {
		of   Subject
		want bool
	}{
		{Subject{Kind: Failed, Minion: "web1", Function: "state.apply"}, true},
		{Subject{Kind: Failed, Minion: "db1", Function: "state.apply"}, false},
		{Subject{Kind: Failed, Minion: "web1", Function: "test.ping"}, false},
		{Subject{Kind: Gone, Minion: "web1", After: 10 * time.Minute}, true},
		{Subject{Kind: Gone, Minion: "web1", After: 15 * time.Minute}, false},
		{Subject{Kind: Drift, Minion: "web1", Function: "state.apply"}, false},
		{Subject{Kind: Node, Code: "SCA-401"}, false},
		{Subject{Kind: Test}, false},
	} {
		if got := r.Matches(tt.of); got != tt.want {
			t.Errorf("%+v: %t", tt.of, got)
		}
	}
	if !all[1].Matches(Subject{Kind: Node, Code: "SCA-401", Notice: true}) || all[1].Matches(Subject{Kind: Node, Code: "SCA-101"}) {
		t.Error("codes do not select problems")
	}
}

// A rule that cannot be obeyed is refused, and the others count. What the message quotes is no secret.
func TestParseRefuses(t *testing.T) {
	const to = "to: {syslog: 'file:///dev/log'}"
	for yaml, want := range map[string]string{
		"[1]":                             "not a map",
		"[{" + to + "}]":                  "on: it has to name one of",
		"[{on: gone}]":                    "to: destination 1: it is not a map",
		"[{on: lost, " + to + "}]":        `no "lost"`,
		"[{on: gone, to: []}]":            "names no destination",
		"[{on: gone, to: {form: slack}}]": "one of url",
		"[{on: gone, to: {url: 'https://x/SECRET', syslog: 'file:///dev/log'}}]":                                 "one of url",
		"[{on: gone, to: {url: 'ftp://host/SECRET'}}]":                                                           "no URL",
		"[{on: gone, to: {url: 'https://ho st/SECRET'}}]":                                                        "no URL",
		"[{on: gone, to: {url: \"https://h/SECRET\\nX: y\"}}]":                                                   "one line",
		"[{on: gone, to: {url: 'https://h/SECRET', form: irc}}]":                                                 "generic, slack and teams",
		"[{on: gone, to: {url_file: secret}}]":                                                                   "whole path",
		"[{on: gone, gone_for: 10, " + to + "}]":                                                                 "a number from 120",
		"[{on: gone, limit: 0, " + to + "}]":                                                                     "a number from 1",
		"[{on: gone, dedupe: .nan, " + to + "}]":                                                                 "dedupe: it has to be a number",
		"[{on: gone, quiet: late, " + to + "}]":                                                                  "no hours",
		"[{on: gone, quiet: '25:00-06:00', " + to + "}]":                                                         "no hours",
		"[{on: gone, minions: [1], " + to + "}]":                                                                 "list of texts",
		"[{on: gone, name: a/b, " + to + "}]":                                                                    "slash",
		"[{on: gone, to: [{syslog: 'file:///dev/log'}, {syslog: 'file:///dev/log'}]}]":                           "destination 2: another",
		"[{on: gone, to: {syslog: /dev/log}}]":                                                                   "file:///dev/log",
		"[{on: gone, to: {syslog: ''}}]":                                                                         "syslog: there are file:///dev/log",
		"[{on: gone, to: {mail: [], from: c@d, server: 'h:25'}}]":                                                "mail: it names no address",
		"[{on: gone, to: {mail: a@b, from: c@d, server: mail}}]":                                                 "a host and a port",
		"[{on: gone, to: {mail: 'A <a@b>', from: c@d, server: 'h:25'}}]":                                         "no mail address",
		"[{on: gone, to: {mail: \"a@b\\r\\nBcc: x@y\", from: c@d, server: 'h:25'}}]":                             "no mail address",
		"[{on: gone, to: {mail: a@b, from: c@d, server: 'h:25', user: u}}]":                                      "belong together",
		"[{on: gone, to: {mail: a@b, from: c@d, server: 'h:25', user: u, password: SECRET, tls: none}}]":         "in clear",
		"[{on: gone, to: {mail: a@b, from: c@d, server: 'h:25', user: u, password: SECRET, password_file: /x}}]": "set as well",
		"[{on: gone, name: a, " + to + "}, {on: key, name: a, " + to + "}]":                                      "same name",
	} {
		t.Run(want, func(t *testing.T) {
			_, faults := Parse(option(t, yaml))
			text := fmt.Sprint(faults)
			if len(faults) != 1 || !strings.Contains(text, want) || strings.Contains(text, "SECRET") {
				t.Errorf("%s: %s", yaml, text)
			}
		})
	}

	all, faults := Parse(option(t, "[{on: gone}, {on: key, "+to+"}]"))
	if len(all) != 1 || len(faults) != 1 {
		t.Errorf("a wrong rule took a right one with it: %v %v", all, faults)
	}
}

// A destination is the same wherever it stands in its rule, and its id shows no secret.
func TestDestinationIDs(t *testing.T) {
	ids := func(rule string) (ids []string) {
		all, faults := Parse(option(t, rule))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		for _, d := range all[0].To {
			ids = append(ids, d.ID)
		}
		return ids
	}

	const hook = "{url: 'https://h/SECRET', token: SECRET}"
	const mail = "{mail: [a@b, c@d], from: e@f, server: 'h:25'}"
	before := ids("[{name: r, on: key, to: [" + hook + ", " + mail + "]}]")
	moved := ids("[{name: r, on: gone, to: [{syslog: 'file:///dev/log'}, {mail: [c@d, a@b], from: e@f, server: 'new:25'}, " + hook + "]}]")
	renamed := ids("[{name: s, on: key, to: [" + hook + ", {url: 'https://h/OTHER'}]}]")
	if before[0] != moved[2] || before[1] != moved[1] || len(before[0]) != 32 {
		t.Errorf("%q moved to %q", before, moved)
	}
	if renamed[0] == before[0] || renamed[0] == renamed[1] || moved[0] == moved[1] {
		t.Errorf("%q, %q", renamed, before)
	}
}

func TestQuiet(t *testing.T) {
	for _, tt := range []struct {
		hours, at string
		want      bool
	}{
		{"22:00-06:30", "22:00", true},
		{"22:00-06:30", "03:00", true},
		{"22:00-06:30", "06:30", false},
		{"22:00-06:30", "21:59", false},
		{"12:00-13:00,18:00-24:00", "12:30", true},
		{"12:00-13:00,18:00-24:00", "23:59", true},
		{"12:00-13:00,18:00-24:00", "00:00", false},
	} {
		q, err := parseQuiet(tt.hours)
		check.Must(t, err)
		at, err := time.Parse("15:04", tt.at)
		check.Must(t, err)
		if q.Contains(at) != tt.want || q.String() != tt.hours {
			t.Errorf("%s in %s: %t, %s", tt.at, tt.hours, !tt.want, q)
		}
	}
}

// A secret in a file is read each time, and appears in no text.
func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "url")
	s := Secret{file: path}
	if _, err := s.Read(); err == nil {
		t.Error("a file that is not there was read")
	}
	for _, text := range []string{"one", "two"} {
		check.Must(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		if got, err := s.Read(); err != nil || got != text {
			t.Errorf("%q, %v", got, err)
		}
	}

	shown := fmt.Sprintf("%v %+v %#v", NewSecret("hush"), &Web{URL: NewSecret("hush")}, Mail{Password: NewSecret("hush")})
	if strings.Contains(shown, "hush") {
		t.Error("a secret is shown:", shown)
	}
}

// Whatever stands in the option, it is read without a panic, and bounds hold.
func FuzzParse(f *testing.F) {
	f.Add("[{on: [failed], to: {url: 'https://h/x'}, quiet: '1:00-2:00'}]")
	f.Add("[{True: gone, to: [{mail: a@b, from: c@d, server: 'h:25'}]}]")
	f.Add("[{on: {a: b}, minions: {c: d}, to: [[1]], limit: 1e400}]")
	f.Fuzz(func(t *testing.T, yaml string) {
		v, err := saltyaml.Decode([]byte(yaml), "test")
		if err != nil {
			return
		}
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		all, _ := Parse(list)
		for _, r := range all {
			if len(r.To) == 0 || len(r.To) > maxDestinations || r.Limit < 1 || r.GoneFor < shortestAbsence || len(r.On) == 0 {
				t.Errorf("%+v", r)
			}
		}
		Parse([]any{value.NewMap("on", v, "to", v, "minions", v, "quiet", v)})
	})
}
