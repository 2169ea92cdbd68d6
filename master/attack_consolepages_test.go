package master

import (
	"net/url"
	"strings"
	"testing"

	"saltern/audit"
	"saltern/master/event"
	"saltern/master/value"
)

// TestAttack55AuditRecords: only who may call audit.records reads the records, on the
// page, by the API, from the job cache and from events; what others wrote into them is
// text.
func TestAttack55AuditRecords(t *testing.T) {
	t.Parallel()
	a := startAPI(t, "console: true\n")
	a.clear("mk_token", "eauth", "sharedsecret", "username", hostile, "password", "wrong")
	a.recorded(1, "login")
	heard := a.m.bus.Subscribe("test", 1000, event.Prefix("salt/run/"))
	defer heard.Close()
	b := a.browser().logIn("alice")
	for _, path := range []string{"/audit", "/audit?user=" + url.QueryEscape(hostile) + "&since=1h&kind=login", "/audit?since=" + url.QueryEscape(hostile)} {
		code, text := b.get(path)
		if code != 200 || scripts(text) || !strings.Contains(text, "&lt;img src=x onerror=alert(1)&gt;") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	bob := a.browser().logIn("bob")
	if code, text := bob.get("/audit"); code != 401 || strings.Contains(text, "mk_token") {
		t.Errorf("bob reads the audit record: %d %s", code, text)
	}
	if _, text := bob.get("/"); strings.Contains(text, "/console/audit") {
		t.Errorf("bob is shown the page")
	}
	if code, body, _ := a.do("POST", "/run", `[{"client": "runner", "fun": "audit.records", "username": "bob", "password": "right", "eauth": "sharedsecret"}]`); code != 401 || strings.Contains(body, "mk_token") {
		t.Errorf("bob by the API: %d %s", code, body)
	}
	for _, c := range a.recorded(5, "runner.call") { // three of alice, and two that were refused
		if c.Function != "audit.records" || (c.User == "alice") != (c.Result == audit.Started) {
			t.Errorf("%+v", c)
		}
		if c.JID == "" {
			continue
		}
		got, err := a.m.jobs.Returns(t.Context(), c.JID)
		must(t, err)
		if strings.Contains(value.Repr(got), "mk_token") {
			t.Errorf("the job cache has it: %s", value.Repr(got))
		}
	}
	n := 0
	for len(heard.C) > 0 {
		e := <-heard.C
		if n++; strings.Contains(value.Repr(e.Data), "mk_token") {
			t.Errorf("%s is for all: %s", e.Tag, value.Repr(e.Data))
		}
	}
	if n < 6 {
		t.Errorf("%d events of three calls", n)
	}
}
