package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"saltern/internal/audit"
	"saltern/master/internal/mastertest"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/oidcprovider"
)

// signInHome is where the provider leads browsers back to: the address of a balancer, say.
const signInHome = "https://salt.example.com:8000"

// signInOptions let the users of a real provider log in.
func signInOptions(t *testing.T) string {
	t.Helper()
	return `auth.oidc.issuer: ` + oidcprovider.Start(t, signInHome+"/console/oidc/done") + `
auth.oidc.client_id: ` + oidcprovider.ClientID + `
auth.oidc.client_secret: ` + oidcprovider.Secret + `
auth.oidc.username_claim: preferred_username
auth.oidc.redirect: ` + signInHome + `/
external_auth:
  oidc:
    ops%: ['.*', '@runner', '@wheel']
    bob: [test.ping]
  sharedsecret:
    alice: ['.*', '@runner', '@wheel', '@jobs']
sharedsecret: right
netapi_enable_clients: [local, local_async, runner, wheel]
rest_cherrypy: {disable_ssl: true, host: 127.0.0.1, port: 1, console: true}
`
}

// beginSignIn follows the link of the log-in page and returns where the browser is sent.
func beginSignIn(b *mastertest.Browser) string {
	b.T.Helper()
	if _, text := b.Get("/login"); !strings.Contains(text, `href="`+signInHome+`/console/oidc"`) {
		b.T.Fatalf("the page has no link to sign in: %s", text)
	}
	code, text, h := b.Send("GET", "/oidc?next=//evil.example.com", nil)
	if code != 303 || strings.Contains(h.Get("Location"), "evil") {
		b.T.Fatalf("%d %q %s", code, h.Get("Location"), text)
	}
	if k := h.Get("Set-Cookie"); !strings.Contains(k, "HttpOnly") || !strings.Contains(k, "SameSite=Lax") ||
		!strings.Contains(k, "Path=/console/oidc;") {
		b.T.Errorf("cookie of the sign-in: %s", k)
	}
	return h.Get("Location")
}

// back is the path below the console that the provider leads somebody to.
func back(t *testing.T, begin, user string) string {
	t.Helper()
	at := oidcprovider.Answer(t, begin, user)
	path, ok := strings.CutPrefix(at.String(), signInHome+"/console")
	if !ok {
		t.Fatalf("the provider leads to %s", at)
	}
	return path
}

// TestSignInElsewhere: a sign-in that one node began ends at another, and the session is
// good at both; the ID token logs programs in.
func TestSignInElsewhere(t *testing.T) {
	t.Parallel()
	ms := mastertest.StartCluster(t, 2, signInOptions(t))
	mastertest.AwaitLinks(t, ms)
	one, other := mastertest.ServeAPI(t, ms[0]), mastertest.ServeAPI(t, ms[1])
	b := one.OpenBrowser()
	path := back(t, beginSignIn(b), "ann")
	b.API = other
	code, text, h := b.Send("GET", path, nil)
	if code != 200 || !strings.Contains(text, `http-equiv="refresh" content="0; url=/console/"`) {
		t.Fatalf("%d %s", code, text)
	}

	for _, k := range h.Values("Set-Cookie") {
		if strings.HasPrefix(k, "saltern_console=") &&
			(!strings.Contains(k, "SameSite=Strict") || !strings.Contains(k, "HttpOnly")) {
			t.Errorf("cookie of the session: %s", k)
		}
	}

	if b.Cookies["saltern_signin"] != "" {
		t.Error("the browser keeps the secret of the sign-in")
	}

	session := b.Cookies["saltern_console"]
	for name, a := range map[string]*mastertest.API{"one": one, "other": other} {
		b.API = a
		await.That(t, "the session at master "+name, func() bool {
			b.Cookies["saltern_console"] = session // a master that does not know it yet has the browser forget it
			code, text := b.Get("/")
			return code == 200 && strings.Contains(text, "ann <small>(admin)</small>")
		})
	}

	if r := other.AwaitRecords(1, "login"); r[0].User != "ann" || r[0].Result != audit.OK {
		t.Errorf("audit record: %+v", r)
	}

	b.API = one
	if code, _, _ := b.Send("GET", path, nil); code != 401 {
		t.Errorf("the same answer again: %d", code)
	}

	if code, _, h := b.Send("GET", "/oidc", nil); code != 303 || h.Get("Location") != "/console/" {
		t.Errorf("a sign-in of somebody who is there: %d %s", code, h.Get("Location"))
	}
}

// TestAttack70SignIn: a browser that did not begin a sign-in gets no session by its answer,
// nor does a forged one; no address comes from a request.
func TestAttack70SignIn(t *testing.T) {
	t.Parallel()
	a := mastertest.ServeAPI(t, mastertest.Start(t, signInOptions(t)))
	victim, attacker := a.OpenBrowser(), a.OpenBrowser()
	beginSignIn(victim)
	path := back(t, beginSignIn(attacker), "bob")
	answer, err := url.ParseQuery(strings.TrimPrefix(path, "/oidc/done?"))
	check.Must(t, err)

	for name, try := range map[string]struct {
		b    *mastertest.Browser
		path string
	}{
		"the code of somebody, planted": {victim, path},
		"without a sign-in":             {a.OpenBrowser(), path},
		"without a state":               {victim, "/oidc/done?code=" + answer.Get("code")},
		"another provider":              {attacker, path + "&iss=https%3A%2F%2Fevil.example.com"},
		"nothing":                       {attacker, "/oidc/done"},
		"a refusal with a page": {attacker,
			"/oidc/done?error=x&error_description=%3Cscript%3E&state=" + answer.Get("state")},
	} {
		before := try.b.Cookies["saltern_signin"]
		code, text, h := try.b.Send("GET", try.path, nil)
		if code != http.StatusUnauthorized || try.b.Cookies["saltern_console"] != "" ||
			h.Get("Location") != "" || strings.Contains(text, "<script>") {
			t.Errorf("%s: %d %q %s", name, code, h.Get("Location"), text)
		}

		if before != "" && try.b.Cookies["saltern_signin"] == "" {
			try.b.Cookies["saltern_signin"] = before // as if it had been planted again
		}
	}

	if code, _, _ := attacker.Send("POST", path, nil); code != http.StatusMethodNotAllowed {
		t.Errorf("as a form: %d", code)
	}

	if r := a.AwaitRecords(6, "login"); r[0].Result != audit.Refused {
		t.Errorf("audit record: %+v", r)
	}

	if code, _, _ := attacker.Send("GET", path, nil); code != 200 {
		t.Errorf("his own: %d", code)
	}
}

// TestAttack74Away: while the provider is away the page says so, and passwords work.
func TestAttack74Away(t *testing.T) {
	t.Parallel()
	options := strings.Replace(signInOptions(t), "auth.oidc.issuer: http://127.0.0.1:",
		"auth.oidc.issuer: http://127.0.0.1:1/", 1)
	a := mastertest.ServeAPI(t, mastertest.Start(t, options))
	b := a.OpenBrowser()
	if code, text := b.Get("/oidc"); code != 503 || !strings.Contains(text, "cannot be asked") {
		t.Errorf("%d %s", code, text)
	}

	b.LogIn("alice")
	if code, _, _ := a.Do("POST", "/login", `{"username": "ann", "password": "x.y.z", "eauth": "oidc"}`); code != 401 {
		t.Errorf("an ID token: %d", code)
	}

	if s := a.Parts.Callers.Auth.Stats(); s.Faults != 1 || s.Wrong != 0 {
		t.Errorf("counted: %+v", s)
	}
}

// TestAttack39Tokens: wrong ID tokens lock their user out at his address.
func TestAttack39Tokens(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, signInOptions(t)+"saltern_login_failures: 2\n")
	a := mastertest.ServeAPI(t, r)
	for range 2 {
		if code, _, _ := a.Do("POST", "/login",
			`{"username": "ann", "password": "x.y.z", "eauth": "oidc"}`); code != 401 {
			t.Fatalf("%d", code)
		}
	}
	if s := r.Parts.Callers.Auth.Stats(); s.Wrong != 2 {
		t.Errorf("counted: %+v", s)
	}
}

// TestSignInWithoutGrant: who signs in with the provider and is granted nothing gets no
// session, and is told why: who he is, the provider has told him already. (The second audit's
// finding 8b.)
func TestSignInWithoutGrant(t *testing.T) {
	t.Parallel()
	a := mastertest.ServeAPI(t, mastertest.Start(t, strings.Replace(signInOptions(t), "bob: [test.ping]", "eve: [test.ping]", 1)))
	b := a.OpenBrowser()
	code, text, _ := b.Send("GET", back(t, beginSignIn(b), "bob"), nil)
	if code != http.StatusForbidden || !strings.Contains(text, "this account has no permission here") ||
		b.Cookies["saltern_console"] != "" {
		t.Errorf("%d %s", code, text)
	}
	if s := a.Parts.Callers.Auth.Stats(); s.Ungranted != 1 {
		t.Errorf("counted: %+v", s)
	}
}
