package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/test/fakemaster"
)

// An external authentication system that does not exist is refused before a
// password is asked for, with a list of those that do.
func TestUnknownEauth(t *testing.T) {
	m := fakemaster.New(t, "a")
	h := newHouse(t, m, "external_auth: {pam: {anna: ['.*']}, fromext: {otto: ['.*']}}\nextension_modules: EXT\n")
	conf := filepath.Join(h.dir, "master")
	b, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}

	ext := filepath.Join(h.dir, "ext")
	if err := os.WriteFile(conf, []byte(strings.Replace(string(b), "EXT", ext, 1)), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := os.MkdirAll(filepath.Join(ext, "auth"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(ext, "auth", "myown.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	const out = "The specified external authentication system \"nosuch\" is not available\n" +
		"Available eauth types: auto, file, fromext, ldap, myown, pam, rest, sharedsecret\n"
	const errs = "ERROR: Authentication failed\n"
	for _, c := range [][]string{
		{"salt", "-a", "nosuch", "a", "test.ping"}, {"salt", "-a", "nosuch", "-T", "a", "test.ping"}, {"salt", "-a", "nosuch", "-b", "1", "a", "test.ping"},
		{"salt-run", "-a", "nosuch", "jobs.list_jobs"}, {"salt-run", "-a", "nosuch", "test.arg", "1"}, {"salt-key", "--eauth", "nosuch", "-L"},
	} {
		t.Run(strings.Join(c, " "), func(t *testing.T) {
			h.t = t
			code := 2
			if c[0] == "salt-run" { // as Salt's
				code = 0
			}
			h.want(h.run(c[0], c[1:]...), code, out, errs)
		})
	}

	h.t = t
	for _, known := range []string{"pam", "fromext", "myown", "ldap"} {
		h.in = "bob\nsecret\n"
		h.run("salt", "-a", known, "a", "test.ping")
		if strings.Contains(h.out, "is not available") || !strings.Contains(h.out, "username: ") {
			t.Errorf("%s: %s%s", known, h.out, h.errs)
		}
	}

	// The configuration of users who may not read the master's does not say which there are.
	e := &tool{partial: true}
	if err := e.knownSystem("nosuch"); err != nil {
		t.Errorf("refused without the master's configuration: %v", err)
	}
}
