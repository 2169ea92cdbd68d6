package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/event"
	"saltern/master/value"
	"saltern/test/fakemaster"
)

// TestSaltRunKeepsSecrets: salt-run shows its user what a function returns, and tells the
// bus nothing of the secrets among the arguments. A function that only Python has is run by
// the master then, since Python's salt-run writes arguments into the job cache; and a log-in
// is not left to Python at all.
func TestSaltRunKeepsSecrets(t *testing.T) {
	const secret = "hunter2Xyz"
	m := fakemaster.New(t, "a")
	h := newHouse(t, m, "")
	sub := m.Bus.Subscribe("test", 100, nil)
	defer sub.Close()

	python := filepath.Join(h.dir, "salt-run") // it would take the place of this process
	if err := os.WriteFile(python, []byte("#!/bin/sh\necho Python has started\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	h.env["SALTERN_PYTHON_SALT_RUN"] = python
	m.Clear = func(load *value.Map) any { // a runner that ends at once
		if load.Str("cmd") != "runner" {
			return nil
		}
		return value.NewMap("jid", "20260101000000000000", "tag", "salt/run/20260101000000000000", "data",
			value.NewMap("return", "done by the master"))
	}

	h.run("salt-run", "error.error", "Exception", "message=password="+secret)
	if !strings.Contains(h.out+h.errs, secret) {
		t.Errorf("the user does not see what he wrote: %s%s", h.out, h.errs)
	}

	for range 2 { // its beginning and its end
		e := <-sub.C
		if strings.Contains(value.Repr(e.Data), secret) {
			t.Errorf("%s: %s", e.Tag, value.Repr(e.Data))
		}
		if _, said := e.Data.Get(event.EauthField); !strings.HasPrefix(e.Tag, "salt/run/") || !said {
			t.Errorf("%s does not say that a key proved its user", e.Tag)
		}
	}

	h.want(h.run("salt-run", "state.orchestrate", "x", "pillar={password: "+secret+"}"), 0, "done by the master\n", "")
	m.Clear = func(load *value.Map) any { // a master that runs nothing for this user
		if load.Str("cmd") != "runner" {
			return nil
		}
		return value.NewMap("error", value.NewMap("name", "UserAuthenticationError", "message", "no"))
	}

	if code := h.run("salt-run", "auth.mk_token", "username=ann", "eauth=pam", "password="+
		secret); code != exitUnavailable || strings.Contains(h.out+h.errs, secret) {
		t.Errorf("a log-in that the master refuses: %d %s%s", code, h.out, h.errs)
	}
}
