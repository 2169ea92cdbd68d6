package web

import (
	"bufio"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/check"
)

// putPendingKey puts a key of a minion that waits.
func putPendingKey(a *mastertest.API, id string) {
	a.T.Helper()
	check.Must(a.T, a.Parts.Keys.Put(id, keys.Pending, mastertest.PublicPEM(a.T, mastertest.KeyPair(a.T, "min6"))))
}

// acceptForm is what accepts that key.
func acceptForm(b *mastertest.Browser, id string) url.Values {
	b.T.Helper()
	f, err := b.Parts.Keys.Finger(id, "sha256")
	check.Must(b.T, err)
	return url.Values{"form": {b.FormToken("/")}, "do": {"accept"}, "state": {"minions_pre"}, "id": {id}, "finger": {f}}
}

// TestAttack40CSRF: no form is taken that another site has made or sent, and neither
// the API nor the console takes the other's cookie.
func TestAttack40CSRF(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "console: true\n")
	alice, bob := a.OpenBrowser().LogIn("alice"), a.OpenBrowser().LogIn("bob")
	putPendingKey(a, "web1")
	good := acceptForm(alice, "web1")
	with := func(name, text string) url.Values {
		f := url.Values{}
		for k, v := range good {
			f[k] = v
		}

		f.Set(name, text)
		if text == "" {
			f.Del(name)
		}

		return f
	}

	for what, c := range map[string]struct {
		form   url.Values
		header []string
		want   int
	}{
		"no token":               {with("form", ""), nil, 403},
		"bob's token":            {with("form", bob.FormToken("/")), nil, 403},
		"the session's token":    {with("form", alice.Cookies["saltern_console"]), nil, 403},
		"another site":           {good, []string{"Origin", "https://evil.example"}, 403},
		"another port":           {good, []string{"Origin", "http://127.0.0.1:1"}, 403},
		"no site":                {good, []string{"Origin", "null"}, 403},
		"another site, by fetch": {good, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"same site":              {good, []string{"Sec-Fetch-Site", "same-site"}, 403},
		"as text":                {good, []string{"Content-Type", "text/plain"}, 415},
		"as JSON":                {good, []string{"Content-Type", "application/json"}, 415},
	} {
		for _, path := range []string{"/keys", "/run", "/logout"} {
			if code, text, h := alice.Send("POST", path, c.form, c.header...); code != c.want ||
				h.Get("Location") != "" {
				t.Errorf("%s with %s: %d %.300s", path, what, code, text)
			}
		}
	}

	for _, path := range []string{"/keys?" + good.Encode(), "/logout",
		"/run?tgt=*&fun=test.ping&form=" + good.Get("form")} {
		if code, _ := alice.Get(path); code >= 500 {
			t.Errorf("GET %s: %d", path, code)
		}
	}

	if e, _ := a.Parts.Keys.Lookup("web1"); e.State != keys.Pending {
		t.Errorf("the key is %v", e.State)
	}

	stranger := a.OpenBrowser()
	form := url.Values{
		"form":     {stranger.FormToken("/login")},
		"username": {"bob"},
		"password": {"right"},
		"eauth":    {"sharedsecret"},
	}

	if code, _, h := a.OpenBrowser().Send("POST", "/login", form); code != 403 ||
		strings.Contains(h.Get("Set-Cookie"), "saltern_console") {
		t.Errorf("a log-in with somebody else's form: %d", code)
	}

	if code, _, _ := stranger.Send("POST", "/login", form, "Origin", "https://evil.example"); code != 403 {
		t.Errorf("a log-in from another site: %d", code)
	}

	if code, body, _ := a.Do("POST", "/", `[{"client": "wheel", "fun": "key.accept", "match": "web1"}]`,
		"Cookie", "saltern_console="+alice.Cookies["saltern_console"]); code != 401 {
		t.Errorf("the API takes the console's cookie: %d %s", code, body)
	}

	if code, _, h := a.OpenBrowser().Send("GET", "/", nil, "Cookie",
		"session_id="+alice.Cookies["saltern_console"], "X-Auth-Token", alice.Cookies["saltern_console"]); code != 303 || h.Get("Location") != "/console/login" {
		t.Errorf("the console takes the API's cookie: %d", code)
	}

	if code, text, h := alice.Send("POST", "/keys", good, "Origin", a.URL, "Sec-Fetch-Site",
		"same-origin"); code != 303 {
		t.Errorf("the right form: %d %s %s", code, text, h)
	}

	if e, _ := a.Parts.Keys.Lookup("web1"); e.State != keys.Accepted {
		t.Errorf("after the right form the key is %v", e.State)
	}
}

// scripts are the ways in which it would have an effect.
func scripts(text string) bool {
	return strings.Contains(text, "<img") || strings.Contains(text, `onerror=alert(1)>"`) ||
		strings.Contains(text, "<script>") || strings.Contains(text, `="javascript:`)
}

// TestAttack41Scripts: what minions and others say is text on every page.
func TestAttack41Scripts(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "console: true\n")
	putPendingKey(a, "p"+mastertest.Hostile)
	n := a.AcceptedMinion(mastertest.Hostile, "min7")
	n.Pillar("grains",
		value.NewMap("id", mastertest.Hostile, "os", mastertest.Hostile, "saltversion", "<script>alert(2)</script>", "ipv4",
			[]any{mastertest.Hostile}, "url", "javascript:alert(3)", mastertest.Hostile, mastertest.Hostile))
	job := a.Publish("*", "test.echo", "arg", []any{mastertest.Hostile, "<script>alert(4)</script>"})
	jid := job.Str("jid")
	state := value.NewMap("result", false, "changes", value.NewMap("diff", "+"+mastertest.Hostile, mastertest.Hostile, mastertest.Hostile),
		"comment", "<script>alert(5)</script>", "duration", mastertest.Hostile, "__run_num__", 0, "warnings",
		[]any{mastertest.Hostile})
	n.Ask("_return", "jid", jid, "fun", "test.echo", "fun_args", []any{}, "return",
		value.NewMap("file_|-"+mastertest.Hostile+"_|-<script>alert(6)</script>_|-managed", state), "retcode", 2,
		"success", false)
	b := a.OpenBrowser().LogIn("alice")
	id := url.QueryEscape(mastertest.Hostile)
	for _, path := range []string{"/", "/keys", "/keys?state=minions_pre", "/keys?q=" + id,
		"/keys/confirm?do=delete&state=minions&id=" + id, "/minions", "/minions?tgt=" + id,
		"/minions?type=pcre&tgt=" + id,
		"/minion?id=" + id, "/jobs?all=1", "/jobs?fun=" + id + "&who=" +
			id, "/job?jid=" + jid, "/job?jid=" +
			id, "/run?look=1&tgt=*&arg=" + id + "&fun=" + id, "/run?look=1&type=" + id + "&tgt=" + id,
		"/events?tag=" + id, "/nothing/" +
			id, "/login?" + id, "/keys/confirm?do=" + id + "&state=" + id + "&id=" + id} {
		_, text := b.Get(path)
		if scripts(text) {
			t.Errorf("%s: %s", path, text)
		}

		if i := strings.Index(text, "&lt;img src=x onerror=alert(1)&gt;"); i < 0 &&
			slices.Contains([]string{"/keys", "/minions", "/jobs?all=1", "/job?jid=" + jid, "/minion?id=" + id}, path) {
			t.Errorf("%s does not show it at all: %s", path, text)
		}
	}

	if code, text := b.Get("/job?jid=" +
		jid); code != 200 || !strings.Contains(text, "failed") || !strings.Contains(text, "&lt;script&gt;alert(5)") {
		t.Errorf("the job: %d %s", code, text)
	}

	_, text, _ := a.OpenBrowser().Send("POST", "/login", url.Values{"username": {mastertest.Hostile}, "eauth": {"<script>"}})
	if scripts(text) {
		t.Errorf("log-in: %s", text)
	}

	// An event is data of a stream, and its tag no line of its own.
	r, err := http.NewRequest("GET", a.URL+"/console/stream?tag=evil*", nil)
	check.Must(t, err)
	r.AddCookie(&http.Cookie{Name: "saltern_console", Value: b.Cookies["saltern_console"]})
	res, err := http.DefaultClient.Do(r)
	check.Must(t, err)
	defer res.Body.Close()

	if kind := res.Header.Get("Content-Type"); res.StatusCode != 200 ||
		!strings.HasPrefix(kind, "text/event-stream") || res.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("stream: %d %s", res.StatusCode, kind)
	}

	lines := bufio.NewScanner(res.Body)
	a.AwaitEvent(lines, "evil/begin")
	check.Must(t, a.Parts.Bus.Fire("other/tag", value.NewMap("x", "not wanted")))
	check.Must(t, a.Parts.Bus.Fire("evil/"+mastertest.Hostile+"\ndata: {}", value.NewMap("x", mastertest.Hostile+"\n\ndata: forged")))
	check.Must(t, a.Parts.Bus.Fire("evil/end", nil))

	for lines.Scan() {
		l := lines.Text()
		if strings.Contains(l, "forged") && !strings.HasPrefix(l, `data: {"tag": "evil/`) ||
			l == "data: {}" || strings.Contains(l, "not wanted") {
			t.Errorf("line %q", l)
		}

		if l == "tag: evil/end" {
			return
		}
	}

	t.Error("the stream ended before the last event")
}

// TestAttack42Sessions: a log-in takes no session that somebody chose, ends the one
// before, and a log-out ends it at the master and for who listens.
func TestAttack42Sessions(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "console: true\n")
	chosen := strings.Repeat("cd", 32)
	b := a.OpenBrowser()
	b.Cookies["saltern_console"] = chosen
	if code, _, h := b.Send("GET", "/", nil); code != 303 || h.Get("Location") != "/console/login" ||
		b.Cookies["saltern_console"] != "" {
		t.Errorf("a chosen session: %d %v", code, b.Cookies)
	}

	b.Cookies["saltern_console"] = chosen
	first := b.LogIn("alice").Cookies["saltern_console"]
	if first == chosen {
		t.Fatal("the chosen session is the one of the log-in")
	}

	known := func(token string) bool {
		m, _ := a.AskInClear("get_token", "token", token).(*value.Map)
		return m.Len() > 0
	}

	form := b.FormToken("/")
	other := a.OpenBrowser() // the same browser, with its cookie, logs in once more
	other.FormToken("/login")
	other.Cookies["saltern_console"] = first
	login := url.Values{
		"form":     {formOf(t, other)},
		"username": {"bob"},
		"password": {"right"},
		"eauth":    {"sharedsecret"},
	}

	code, text, h := other.Send("POST", "/login", login)
	second := other.Cookies["saltern_console"]
	if code != 303 || second == first || known(first) || !known(second) {
		t.Errorf("a second log-in: %d %s, the first session is known: %t", code, text, known(first))
	}

	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/console"} {
		if !strings.Contains(h.Get("Set-Cookie"), want) {
			t.Errorf("the cookie is without %s: %s", want, h.Get("Set-Cookie"))
		}
	}

	b.Cookies["saltern_console"] = first
	if code, _, _ := b.Send("POST", "/keys", url.Values{"form": {form}}); code != 303 && code != 403 {
		t.Errorf("the first session: %d", code)
	}

	r, err := http.NewRequest("GET", a.URL+"/console/stream", nil)
	check.Must(t, err)
	r.AddCookie(&http.Cookie{Name: "saltern_console", Value: second})
	res, err := http.DefaultClient.Do(r)
	check.Must(t, err)
	defer res.Body.Close()

	if code, _, _ := other.Send("POST", "/logout", url.Values{"form": {other.FormToken("/")}}); code != 303 ||
		known(second) || other.Cookies["saltern_console"] != "" {
		t.Errorf("log-out: %d, known: %t", code, known(second))
	}

	if _, err := io.Copy(io.Discard, res.Body); err != nil { // it ends
		t.Error(err)
	}

	limited := 0
	for range 60 {
		b.Cookies["saltern_console"] = chosen
		if code, _, _ := b.Send("GET", "/", nil); code == 429 {
			limited++
		}
	}

	if limited < 20 {
		t.Errorf("of 60 guesses %d were refused at once", limited)
	}
}

// formOf is the token of the log-in form that goes with a browser's cookie, whoever
// is logged in.
func formOf(t *testing.T, b *mastertest.Browser) string {
	t.Helper()
	c := *b
	c.Cookies = map[string]string{"saltern_form": b.Cookies["saltern_form"]}
	return c.FormToken("/login")
}

// TestAttack43Frames: no answer of the console may be put into another page, hold
// anything from elsewhere, or be kept by a cache.
func TestAttack43Frames(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "console: true\n")
	b := a.OpenBrowser().LogIn("alice")
	const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
	for _, who := range []*mastertest.Browser{b, a.OpenBrowser()} {
		for _, path := range []string{"", "/", "/login", "/keys", "/minions", "/jobs", "/run", "/events",
			"/job?jid=x", "/nothing", "/logout", "/console.css", "/console.js", "/icon.svg",
			"/keys/confirm"} {
			_, text, h := who.Send("GET", path, nil, "Origin", "https://evil.example")
			if h.Get("Content-Security-Policy") != policy || h.Get("X-Frame-Options") != "DENY" ||
				h.Get("X-Content-Type-Options") != "nosniff" ||
				h.Get("Access-Control-Allow-Origin") != "" || h.Get("Referrer-Policy") != "same-origin" {
				t.Errorf("%s: %v", path, h)
			}

			if !strings.Contains(path, "console.") && !strings.Contains(path, "icon") &&
				h.Get("Cache-Control") != "no-store" {
				t.Errorf("%s may be kept: %s", path, h.Get("Cache-Control"))
			}

			if strings.Contains(text, "style=") ||
				strings.Contains(text, " on") &&
					regexp.MustCompile(`<[^>]* on[a-z]+=`).MatchString(text) || strings.Contains(text,
				"<style") || regexp.MustCompile(`<script[^>]*>[^<]`).MatchString(text) {
				t.Errorf("%s has what the policy does not run: %s", path, text)
			}

			if m := regexp.MustCompile(`(?:href|src|action)="([^"]*)"`).FindAllStringSubmatch(text, -1); path != "/console.js" {
				for _, l := range m {
					if !strings.HasPrefix(l[1], "/console") && l[1] != "#main" {
						t.Errorf("%s leads to %s", path, l[1])
					}
				}
			}
		}
	}
}

// TestAttack44Headers: nothing that is asked for becomes a header, or a redirect to
// elsewhere.
func TestAttack44Headers(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "console: true\nconsole_redirect: true\n")
	b := a.OpenBrowser().LogIn("alice")
	a.AcceptedMinion("web1", "min7")
	const inject = "x\r\nSet-Cookie: saltern_console=evil\r\nX-Evil: 1\r\n\r\n<script>"
	evil := url.QueryEscape(inject)
	checkHeaders := func(what string, h http.Header) {
		t.Helper()
		at := h.Get("Location")
		if h.Get("X-Evil") != "" || strings.Contains(strings.Join(h.Values("Set-Cookie"), " "), "evil") ||
			at != "" && !strings.HasPrefix(at, "/console/") || strings.ContainsAny(at, "\r\n") {
			t.Errorf("%s: %v", what, h)
		}
	}

	for _, path := range []string{"/" + evil, "/keys?state=" + evil + "&q=" + evil + "&page=" + evil,
		"/job?jid=" + evil, "/run?tgt=" + evil + "&look=1", "/events?tag=" + evil, "/stream?jid=" + evil,
		"/login?next=//evil.example", "//evil.example", "/..//evil.example", "/%2f%2fevil.example"} {
		_, _, h := b.Send("GET", path, nil)
		checkHeaders(path, h)
	}

	form := b.FormToken("/")
	for path, f := range map[string]url.Values{
		"/run":    {"tgt": {"*"}, "fun": {"test.ping"}, "arg": {inject}},
		"/keys":   {"do": {inject}, "state": {inject}, "id": {inject}, "finger": {inject}},
		"/logout": {"next": {"//evil.example"}},
	} {
		f.Set("form", form)
		_, _, h := b.Send("POST", path, f, "Referer", "https://evil.example/", "X-Forwarded-Host", "evil.example")
		checkHeaders(path, h)
	}

	s := a.OpenBrowser()
	_, _, h := s.Send("POST", "/login",
		url.Values{"form": {s.FormToken("/login")}, "username": {inject}, "password": {inject}, "eauth": {inject}})
	checkHeaders("/login", h)
	r, err := http.NewRequest("GET", a.URL+"/", nil)
	check.Must(t, err)
	r.Host = "evil.example"
	r.Header.Set("Accept", "text/html,*/*;q=0.8")
	res, err := http.DefaultTransport.RoundTrip(r)
	check.Must(t, err)
	res.Body.Close()
	checkHeaders("/", res.Header)

	if res.StatusCode != 303 {
		t.Errorf("/ for a browser: %d", res.StatusCode)
	}
}
