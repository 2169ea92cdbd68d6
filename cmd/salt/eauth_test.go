package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/value"
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
			h.want(h.run(c[0], c[1:]...), 2, out, errs)
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

// TestRunnerThatTheMasterRefuses (m4): salt-run with a log-in says so and exits with 1, and asks nobody
// else: Python's salt-run would ask the same master again, and exit with 0.
func TestRunnerThatTheMasterRefuses(t *testing.T) {
	m := fakemaster.New(t, "a")
	h := newHouse(t, m, "")
	python := filepath.Join(h.dir, "salt-run") // it would take the place of this process
	if err := os.WriteFile(python, []byte("#!/bin/sh\necho Python has started\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	const why = `Authentication failure of type "eauth" occurred for user nobody.`
	h.env["SALTERN_PYTHON_SALT_RUN"] = python
	m.Clear = func(load *value.Map) any {
		if load.Str("cmd") != "runner" {
			return nil
		}
		return value.NewMap("error", value.NewMap("name", "EauthAuthenticationError", "message", why))
	}

	for _, function := range []string{"test.arg", "jobs.list_jobs", "own.function", "auth.mk_token"} {
		for _, async := range []string{"--async", ""} {
			words := []string{"-a", "auto", "--username=nobody", "--password=x", function}
			if async != "" {
				words = append(words, async)
			}
			if code := h.run("salt-run", words...); code != exitGeneric || !strings.Contains(h.errs, why) {
				t.Errorf("%s %s: exit %d, %q, %q", function, async, code, h.out, h.errs)
			}
		}
	}
}
