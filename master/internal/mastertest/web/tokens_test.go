package web

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestAttack85ListOfLogIns: who may not call wheel sees no log-in and ends none, by the
// pages, a form that he made himself, or the API; the list goes to its caller alone, and
// holds no token.
func TestAttack85ListOfLogIns(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "console: true\n")
	token := a.Token("alice")
	name := control.TokenName(token)
	heard := a.Parts.Bus.Subscribe("test", 1000, event.Prefix("salt/wheel/"))
	defer heard.Close()

	for _, user := range []string{"bob", "vera"} {
		b := a.OpenBrowser().LogIn(user)
		for _, path := range []string{"/tokens", "/tokens/confirm?name=" + name, "/tokens/confirm?user=alice"} {
			if code, text := b.Get(path); code != 401 && code != 403 || strings.Contains(text, name) {
				t.Errorf("%s at %s: %d %s", user, path, code, text)
			}
		}

		form := url.Values{"form": {b.FormToken("/events")}, "name": {name}}
		if code, text, _ := b.Send("POST", "/tokens", form); code != 401 && code != 403 {
			t.Errorf("%s ends a log-in by a form: %d %s", user, code, text)
		}

		if _, text := b.Get("/"); strings.Contains(text, "/console/tokens") {
			t.Errorf("%s is shown the page", user)
		}

		for fun, rest := range map[string]string{"token.list": "", "token.revoke": `, "name": "` + name + `"`} {
			for _, client := range []string{"wheel", "wheel_async", "runner"} {
				code, body, _ := a.Do("POST", "/", `[{"client": "`+client+`", "fun": "`+fun+`"`+rest+`}]`,
					"X-Auth-Token", a.Token(user))
				if code == 200 && !strings.Contains(body, "is not available") || strings.Contains(body, name) {
					t.Errorf("%s by %s %s: %d %s", user, client, fun, code, body)
				}
			}
		}
	}

	alice := a.OpenBrowser().LogIn("alice")
	code, text := alice.Get("/tokens")
	if code != 200 || !strings.Contains(text, name) || !strings.Contains(text, "127.0.0.1") ||
		!strings.Contains(text, ">this session</small>") || strings.Contains(text, token) {
		t.Errorf("alice: %d %s", code, text)
	}

	if code, body, _ := a.Do("POST", "/", `[{"client": "wheel", "fun": "token.list"}]`, "X-Auth-Token",
		token); code != 200 || !strings.Contains(body, name) || strings.Contains(body, token) {
		t.Errorf("by the API: %d %s", code, body)
	}

	n := 0
	for len(heard.C) > 0 {
		e := <-heard.C
		n++
		if strings.Contains(value.Repr(e.Data), name) {
			t.Errorf("%s is for all: %s", e.Tag, value.Repr(e.Data))
		}
	}

	if n < 4 {
		t.Errorf("%d events of two calls", n)
	}

	for _, c := range a.AwaitRecords(14, "wheel.call") {
		if c.JID == "" {
			continue
		}

		got, err := a.Parts.Jobs.Returns(t.Context(), c.JID)
		check.Must(t, err)
		if strings.Contains(value.Repr(got), name) {
			t.Errorf("the job cache has it: %s", value.Repr(got))
		}
	}

	if code, _, _ := a.Do("GET", "/stats", "", "X-Auth-Token", token); code != 200 {
		t.Errorf("the token of alice is gone: %d", code)
	}
}

// TestAttack85NameOfALogIn: what names a token lets nobody in, and names one alone; what
// was ended is refused, and that is written down.
func TestAttack85NameOfALogIn(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "console: true\n")
	bob, other, alice := a.Token("bob"), a.Token("bob"), a.Token("alice")
	name := control.TokenName(bob)
	for _, shown := range []string{name, name + name, name + name + name + name} {
		if code, _, _ := a.Do("GET", "/stats", "", "X-Auth-Token", shown); code != 401 {
			t.Errorf("%s lets somebody in: %d", shown, code)
		}
		if m, _ := a.AskInClear("wheel", "fun", "token.list", "token", shown).(*value.Map); m.Map("error") == nil {
			t.Errorf("the master takes %s: %s", shown, value.Repr(m))
		}
	}

	files, err := os.ReadDir(a.Parts.Options.TokenDir)
	check.Must(t, err)
	admin := a.OpenBrowser().LogIn("alice")
	form := admin.FormToken("/tokens/confirm?name=" + name)
	for _, bad := range []url.Values{
		{},
		{"name": {"*"}},
		{"name": {"../" + name}},
		{"name": {bob}},
		{"name": {name[:14]}},
		{"name": {name}, "user": {"alice"}},
		{"user": {strings.Repeat("x", 300)}},
		{"name": {"0123456789abcdef"}},
		{"user": {"b*"}},
	} {
		bad.Set("form", form)
		if code, text, _ := admin.Send("POST", "/tokens", bad); code != 400 && code != 404 {
			t.Errorf("%v: %d %s", bad, code, text)
		}
	}

	if code, text, _ := admin.Send("POST", "/tokens", url.Values{"name": {name}}); code != 403 {
		t.Errorf("without the token of the session: %d %s", code, text)
	}

	if now, _ := os.ReadDir(a.Parts.Options.TokenDir); len(now) != len(files)+1 {
		t.Errorf("%d tokens, then %d", len(files), len(now))
	}

	if code, text, h := admin.Send("POST", "/tokens", url.Values{
		"form": {form},
		"name": {name},
	}); code != 303 || h.Get("Location") != "/console/tokens?done=1" {
		t.Errorf("%d %s", code, text)
	}

	refused := func(token string) bool {
		code, _, _ := a.Do("POST", "/", `[{"client": "local", "tgt": "x", "fun": "test.ping"}]`, "X-Auth-Token", token)
		return code == 401
	}
	if !refused(bob) {
		t.Error("the token that was ended is taken")
	}

	await.That(t, "the API asks for the token again",
		func() bool { code, _, _ := a.Do("GET", "/stats", "", "X-Auth-Token", bob); return code == 401 })
	if refused(other) {
		t.Error("another token of bob has ended")
	}

	if code, body, _ := a.Do("POST", "/",
		`[{"client": "wheel", "fun": "token.revoke", "owner": "bob", "system": "pam"}, {"client": "wheel", "fun": "token.revoke", "owner": "bob", "system": "sharedsecret"}]`,
		"X-Auth-Token", alice); code != 200 ||
		!strings.Contains(body, "no such log-in") || !strings.Contains(body, `"return": 1`) || !refused(other) || refused(alice) {
		t.Errorf("%d %s", code, body)
	}

	got := ""
	for _, r := range audit.Settled(a.AwaitRecords(6, "token.revoke")) {
		got += r.User + " " + r.Object + " " + string(r.Result) + "\n"
	}

	if got != "alice "+name+" ok\nalice bob failed\nalice bob ok\n" {
		t.Errorf("got %s", got)
	}
}
