package web

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/internal/audit"
	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/check"
)

// TestAttack55AuditRecords: only who may call audit.records reads the records, on the
// page, by the API, from the job cache and from events; what others wrote into them is
// text.
func TestAttack55AuditRecords(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "console: true\n")
	a.AskInClear("mk_token", "eauth", "sharedsecret", "username", mastertest.Hostile, "password", "wrong")
	a.AwaitRecords(1, "login")
	heard := a.Parts.Bus.Subscribe("test", 1000, event.Prefix("salt/run/"))
	defer heard.Close()

	b := a.OpenBrowser().LogIn("alice")
	for _, path := range []string{"/audit",
		"/audit?user=" + url.QueryEscape(mastertest.Hostile) + "&since=1h&kind=login",
		"/audit?since=" + url.QueryEscape(mastertest.Hostile)} {
		code, text := b.Get(path)
		if code != 200 || scripts(text) || !strings.Contains(text, "&lt;img src=x onerror=alert(1)&gt;") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}

	bob := a.OpenBrowser().LogIn("bob")
	if code, text := bob.Get("/audit"); code != 401 || strings.Contains(text, "mk_token") {
		t.Errorf("bob reads the audit record: %d %s", code, text)
	}

	if _, text := bob.Get("/"); strings.Contains(text, "/console/audit") {
		t.Errorf("bob is shown the page")
	}

	if code, body, _ := a.Do("POST", "/run",
		`[{"client": "runner", "fun": "audit.records", "username": "bob", "password": "right", "eauth": "sharedsecret"}]`); code != 401 || strings.Contains(body, "mk_token") {
		t.Errorf("bob by the API: %d %s", code, body)
	}

	for _, c := range a.AwaitRecords(5, "runner.call") { // three of alice, and two that were refused
		if c.Function != "audit.records" || (c.User == "alice") != (c.Result == audit.Started) {
			t.Errorf("%+v", c)
		}

		if c.JID == "" {
			continue
		}

		got, err := a.Parts.Jobs.Returns(t.Context(), c.JID)
		check.Must(t, err)
		if strings.Contains(value.Repr(got), "mk_token") {
			t.Errorf("the job cache has it: %s", value.Repr(got))
		}
	}

	n := 0
	for len(heard.C) > 0 {
		e := <-heard.C
		n++
		if strings.Contains(value.Repr(e.Data), "mk_token") {
			t.Errorf("%s is for all: %s", e.Tag, value.Repr(e.Data))
		}
	}

	if n < 6 {
		t.Errorf("%d events of three calls", n)
	}
}

// withFiles starts the API of a master that serves files and pillars with hostile names
// and contents, and gives those who may see files and no pillar.
func withFiles(t *testing.T) (*mastertest.API, *mastertest.Browser, *mastertest.Browser) {
	t.Helper()
	a := mastertest.StartAPI(t, "console: true\n")
	for name, text := range map[string]string{
		"roots/" + mastertest.Hostile + "/" + mastertest.Hostile + ".sls": "x: " + mastertest.Hostile + "\n<script>alert(7)</script>\n\u202e\x1b[2J",
		"roots/top.sls":  "base: {'*': [secret]}\n",
		"roots/binary":   "\x7fELF\x00<script>alert(8)</script>",
		"roots/big":      strings.Repeat("é<script>\n", 20_000),
		"pillar/top.sls": "base: {'*': [secret]}\n",
		"pillar/secret.sls": "hush: opensesame\n" + `"` + strings.ReplaceAll(mastertest.Hostile, `"`, `\"`) +
			`": "<script>alert(9)</script>"` + "\n",
		"outside/secret":               "opensesame",
		"roots-of-somebody-else/other": "opensesame",
	} {
		check.Must(t, os.MkdirAll(filepath.Dir(a.Path(name)), 0o755))
		check.Must(t, os.WriteFile(a.Path(name), []byte(text), 0o644))
	}

	a.AcceptedMinion("web1", "min7")
	return a, a.OpenBrowser().LogIn("alice"), a.OpenBrowser().LogIn("vera")
}

// TestAttack56FileTexts: names and contents of files, and pillars, are text.
func TestAttack56FileTexts(t *testing.T) {
	t.Parallel()
	_, alice, _ := withFiles(t)
	id := url.QueryEscape(mastertest.Hostile)
	for path, wants := range map[string][]string{
		"/files":                      {"&lt;img src=x onerror=alert(1)&gt;", "top.sls"},
		"/files?dir=" + id:            {"&lt;img src=x onerror=alert(1)&gt;", ".sls</a>"},
		"/files?env=" + id + "&dir=x": {"There is nothing here"},
		"/file?env=base&path=" + url.QueryEscape(mastertest.Hostile+"/"+mastertest.Hostile+".sls"): {"&lt;script&gt;alert(7)", "x: &lt;img"},
		"/file?env=base&path=binary": {"It is not text."},
		"/file?env=base&path=big":    {"more bytes are not shown here"},
		"/pillar?id=web1": {"&lt;script&gt;alert(9)",
			"opensesame", "&lt;img src=x onerror=alert(1)&gt;"},
	} {
		code, text := alice.Get(path)
		if code != 200 || scripts(text) || strings.ContainsAny(text, "\u202e\x1b") || len(text) > 200_000 {
			t.Errorf("%s: %d %.3000s", path, code, text)
		}

		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in %.3000s", path, want, text)
			}
		}
	}
}

// TestAttack57FilePaths: the page of files shows what minions are served, and no request
// leads out of the roots or to another environment than it names.
func TestAttack57FilePaths(t *testing.T) {
	t.Parallel()
	_, alice, vera := withFiles(t)
	for _, b := range []*mastertest.Browser{alice, vera} {
		if code, text := b.Get("/file?env=base&path=top.sls"); code != 200 || !strings.Contains(text, "secret") {
			t.Errorf("a good one: %d %s", code, text)
		}

		for _, p := range []string{"../outside/secret", "..//outside/secret", "x/../../outside/secret",
			"/etc/passwd", "//etc/passwd", "|/etc/passwd", "|../outside/secret", "|||../outside/secret",
			"%2e%2e/outside/secret", "..%2foutside/secret", "..\\outside\\secret", "top.sls/../../outside/secret", "../roots-of-somebody-else/other", "salt://../outside/secret",
			"secret?saltenv=../pillar", "secret.sls?saltenv=__env__", "../pillar/secret.sls", "top.sls\x00", ".", "..", "", strings.Repeat("../", 1000) + "etc/passwd", strings.Repeat("a/", 4000)} {
			for _, env := range []string{"base", "../outside", "/", "..", "__env__", "../pillar", "\x00",
				"base\x00/../outside"} {
				code, text := b.Get("/file?" + url.Values{"env": {env}, "path": {p}}.Encode())
				if code < 400 || code >= 500 || strings.Contains(text, "opensesame") ||
					strings.Contains(text, "root:x:") {
					t.Errorf("%.100q of %q: %d %.3000s", p, env, code, text)
				}

				code, text = b.Get("/files?" + url.Values{"env": {env}, "dir": {p}}.Encode())
				_, list, _ := strings.Cut(text, `<ul class="files">`)
				list, _, _ = strings.Cut(list, "</ul>") // a button below it has the word secrets
				if code >= 500 || strings.Contains(list, "passwd") || strings.Contains(list, "secret") ||
					len(text) > 150_000 {
					t.Errorf("folder %.100q of %q: %d %.3000s", p, env, code, text)
				}
			}
		}
	}
}

// TestAttack58Pillar: who may not render pillars sees none: not on the page, and not
// what a page showed to somebody else, in events or the job cache.
func TestAttack58Pillar(t *testing.T) {
	t.Parallel()
	a, alice, vera := withFiles(t)
	heard := a.Parts.Bus.Subscribe("test", 1000, nil)
	defer heard.Close()

	if code, text := alice.Get("/pillar?id=web1"); code != 200 || !strings.Contains(text, "opensesame") {
		t.Fatalf("alice: %d %s", code, text)
	}

	for _, path := range []string{"/pillar?id=web1", "/pillar?id=*", "/files", "/minion?id=web1", "/"} {
		code, text := vera.Get(path)
		if strings.Contains(text, "opensesame") || strings.Contains(text, "/console/pillar") ||
			strings.HasPrefix(path, "/pillar") && code < 400 {
			t.Errorf("%s for vera: %d %s", path, code, text)
		}
	}

	calls := a.AwaitRecords(2, "runner.call") // of alice, and of vera, which was refused
	if c := calls[0]; c.User != "alice" || c.Function != "pillar.show_pillar" || c.Object != "web1" ||
		c.Result != audit.Started {
		t.Errorf("%+v", c)
	}

	if c := calls[1]; c.User != "vera" || c.Result != audit.Refused {
		t.Errorf("%+v", c)
	}

	for _, path := range []string{"/jobs?all=1", "/job?jid=" + calls[0].JID} {
		if code, text := vera.Get(path); code != 200 || strings.Contains(text, "opensesame") {
			t.Errorf("%s for vera: %d %s", path, code, text)
		}
	}

	n := 0
	for len(heard.C) > 0 {
		if e := <-heard.C; strings.Contains(value.Repr(e.Data), "opensesame") {
			t.Errorf("%s is for all: %s", e.Tag, value.Repr(e.Data))
		} else if strings.HasPrefix(e.Tag, "salt/run/"+calls[0].JID) {
			n++
		}
	}

	if n != 2 {
		t.Errorf("%d events of the call", n)
	}
}
