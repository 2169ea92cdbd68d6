package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// TestRunnerThatTheMasterRefuses (m4): salt-run with a log-in prints the refusal on standard
// output, in the form of --out as Salt does, exits with 1, and asks nobody else: Python's salt-run
// would ask the same master again, and exit with 0.
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
			h.want(h.run("salt-run", words...), exitGeneric, why+"\n", "")
			h.want(h.run("salt-run", append(words, "--out=json")...), exitGeneric, strconv.Quote(why)+"\n", "")
			h.want(h.run("salt-run", append(words, "--quiet")...), exitGeneric, "", "")
		}
	}
}

// TestEventsOfARunnerOnTheTerminal: of the events of a runner salt-run prints its progress, and with a
// log-in its result alone. Those by which an orchestration announces its steps made several documents
// of --out=json.
func TestEventsOfARunnerOnTheTerminal(t *testing.T) {
	m := fakemaster.New(t, "a")
	h := newHouse(t, m, "")
	const tag = "salt/run/20260101000000000000"
	m.Clear = func(load *value.Map) any {
		if load.Str("cmd") != "runner" {
			return nil
		}
		m.Bus.Fire(tag+"/args", value.NewMap("type", "function", "name", "test.ping"))
		m.Bus.Fire(tag+"/progress", value.NewMap("message", "half"))
		m.Bus.Fire(tag+"/own/event", value.NewMap("of", "a step"))
		m.Bus.Fire(tag+"/ret", value.NewMap("return", []any{"done"}, "success", true))
		return value.NewMap("tag", tag, "jid", "20260101000000000000")
	}

	for _, c := range []struct {
		words string
		lines []string // the beginning of each line of the output
	}{
		{"jobs.list_jobs --out=json --out-indent=-1", []string{`{"suffix": "progress"`, `["done"]`}},
		{"-a auto --username=ann --password=x state.orchestrate x --out=json --out-indent=-1", []string{`["done"]`}},
		{"jobs.list_jobs --quiet", nil},
	} {
		code := h.run("salt-run", strings.Fields(c.words)...)
		lines := strings.Split(strings.TrimSuffix(h.out, "\n"), "\n")
		if !slices.EqualFunc(lines, c.lines, strings.HasPrefix) && h.out+strings.Join(c.lines, "") != "" {
			t.Errorf("%s: exit %d, %q, %q, want lines that begin with %q", c.words, code, h.out, h.errs, c.lines)
		}
	}
}

// salt-key with a log-in lists and changes keys by the master's wheel functions, and touches no
// folder of its own. The answers are those of a real master.
func TestKeysByExternalAuthentication(t *testing.T) {
	m := fakemaster.New(t, "a")
	h := newHouse(t, m, "")
	var asked []string
	m.Clear = func(load *value.Map) any {
		if load.Str("cmd") != "wheel" {
			return nil
		}
		if load.Str("password") != "right" {
			return value.NewMap("error", value.NewMap("name", "EauthAuthenticationError",
				"message", `Authentication failure of type "eauth" occurred for user ann.`))
		}

		fun, match := load.Str("fun"), load.Map("kwarg").Value("match")
		asked = append(asked, fun+" "+value.Repr(match))
		all := value.NewMap("minions", []any{"web1"}, "minions_pre", []any{"db2", "web2"},
			"minions_rejected", []any{"web3"}, "minions_denied", []any{})
		data := value.NewMap("success", true, "return", all)
		switch fun {
		case "key.list":
			if match == "acc" {
				data.Set("return", value.NewMap("minions", []any{"web1"}))
			}
		case "key.name_match":
			data.Set("return", value.NewMap("minions", []any{"web1"}, "minions_pre", []any{"web2"}))
			if match == "nobody" {
				data.Set("return", value.NewMap())
			}
		case "key.key_str":
			data.Set("return", value.NewMap("minions", value.NewMap("web1", "-----BEGIN PUBLIC KEY-----")))
		case "key.finger":
			data.Set("success", false)
			data.Set("return", "Exception occurred in wheel finger: the disk is full")
		}

		return value.NewMap("tag", "salt/wheel/1", "data", data)
	}

	call := func(password string, words ...string) int {
		asked = nil
		login := []string{"--eauth", "auto", "--username=ann", "--password=" + password, "--out=json"}
		return h.run("salt-key", append(login, words...)...)
	}

	for _, c := range []struct {
		words []string
		code  int
		out   string // a part of what is printed
		asked string
	}{
		{words: []string{"-l", "acc"}, out: `"minions": [`, asked: "key.list 'acc'"},
		{words: []string{"-L"}, out: `"minions_rejected": [`, asked: "key.list 'all'"},
		{words: nil, out: `"minions_denied": []`, asked: "key.list 'all'"},
		{words: []string{"-p", "web1"}, out: "BEGIN PUBLIC KEY", asked: "key.key_str 'web1'"},
		{
			words: []string{"-y", "-a", "web*"},
			out:   "Key for minion web2 accepted.",
			asked: "key.name_match 'web*', key.accept_dict {'minions_pre': ['web2']}",
		},
		{
			words: []string{"-y", "-r", "web*", "--include-accepted"},
			out:   "Key for minion web1 rejected.",
			asked: "key.name_match 'web*', key.reject_dict {'minions_pre': ['web2'], 'minions': ['web1']}",
		},
		{
			words: []string{"-y", "-D"},
			out:   "Key for minion web1 deleted.",
			asked: "key.name_match '*', key.delete_dict {'minions_pre': ['web2'], 'minions': ['web1']}",
		},
		{
			words: []string{"-y", "-d", "web*", "--only-state", "acc"},
			out:   "Key for minion web1 deleted.",
			asked: "key.name_match 'web*', key.delete_dict {'minions': ['web1']}",
		},
		{
			words: []string{"-y", "-d", "nobody"},
			out:   "The key glob 'nobody' does not match any unaccepted keys.",
			asked: "key.name_match 'nobody'",
		},
		{words: []string{"-F"}, code: exitGeneric, asked: "key.finger '*'"},
		{words: []string{"-A", "--only-fingerprint", "aa"}, code: exitUsage},
	} {
		t.Run(strings.Join(c.words, " "), func(t *testing.T) {
			h.t = t
			code := call("right", c.words...)
			got := strings.Join(asked, ", ")
			if code != c.code || !strings.Contains(h.out, c.out) || got != c.asked {
				t.Errorf("exit %d, asked %s\n%s%s", code, got, h.out, h.errs)
			}
		})
	}

	h.t = t
	const refusal = `Authentication failure of type "eauth" occurred for user ann.`
	for _, words := range [][]string{{"-l", "acc"}, {"-L"}, {"-f", "web1"}, {"-y", "-a", "web2"}, {"-y", "-D"}} {
		h.want(call("wrong", words...), exitGeneric, strconv.Quote(refusal)+"\n", "") // call adds --out=json
		h.want(call("wrong", append(words, "--out=nested")...), exitGeneric, refusal+"\n", "")
		h.want(call("wrong", append(words, "--quiet")...), exitGeneric, "", "")
	}
	h.in = "n\n"
	if code := call("right", "-a", "web*"); code != 0 || strings.Contains(h.out, "accepted.") || len(asked) != 1 {
		t.Errorf("exit %d after no: %s, %q", code, h.out, asked)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "pki")); err == nil {
		t.Error("it has made a folder of keys")
	}
}
