package web

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
)

// TestAttack81ViewerActs: who may look at the nodes, or call all runners, does nothing to
// them, by the page, a form that he made himself or the API; who may is named to the
// supervisor with his address.
func TestAttack81ViewerActs(t *testing.T) {
	t.Parallel()
	a, s := mastertest.StartSupervised(t)
	vera := a.OpenBrowser().LogIn("vera")
	if code, text := vera.Get("/"); code != 200 || !strings.Contains(text, "Nodes of") ||
		strings.Contains(text, "/nodes/confirm") {
		t.Errorf("vera: %d %s", code, text)
	}

	drain := url.Values{"form": {vera.FormToken("/")}, "do": {"drain"}, "node": {"n1"}}
	if code, text, _ := vera.Send("POST", "/nodes", drain); code != 403 {
		t.Errorf("vera drains by a form: %d %s", code, text)
	}

	for _, user := range []string{"vera", "bob"} {
		token := a.Token(user)
		for fun, rest := range map[string]string{
			"appliance.drain":   "",
			"appliance.undrain": "",
			"appliance.restart": `, "service": "lb"`,
		} {
			for _, client := range []string{"wheel", "wheel_async", "runner", "local"} {
				low := `[{"client": "` + client + `", "tgt": "*", "fun": "` + fun + `", "node": "n1"` + rest + `}]`
				if code, body, _ := a.Do("POST", "/", low, "X-Auth-Token", token); code == 200 &&
					!strings.Contains(body, "is not available") && !strings.Contains(body, `"return": [{}]`) {
					t.Errorf("%s by %s %s: %d %s", user, client, fun, code, body)
				}
			}
		}
	}

	bob := a.OpenBrowser().LogIn("bob")
	if _, text := bob.Get("/"); strings.Contains(text, "Nodes of") {
		t.Error("bob sees the nodes")
	}

	if got := s.Verbs(); len(got) > 0 {
		t.Fatalf("%q", got)
	}

	alice := a.OpenBrowser().LogIn("alice")
	drain.Set("form", alice.FormToken("/"))
	if code, text, h := alice.Send("POST", "/nodes", drain); code != 303 ||
		!strings.HasPrefix(h.Get("Location"), "/console/?done=drain") {
		t.Fatalf("alice: %d %s", code, text)
	}

	if by := s.Acted; len(by) != 1 || by[0].User != "alice" || by[0].Eauth != "sharedsecret" ||
		by[0].Proof != "token" || by[0].From != "127.0.0.1" || by[0].Via != "salt-api" {
		t.Errorf("%+v", by)
	}
}

// TestAttack82DrainFromElsewhere: no other site has a browser drain or restart a node.
func TestAttack82DrainFromElsewhere(t *testing.T) {
	t.Parallel()
	a, s := mastertest.StartSupervised(t)
	alice, bob := a.OpenBrowser().LogIn("alice"), a.OpenBrowser().LogIn("bob")
	good := url.Values{"do": {"restart"}, "node": {"n1"}, "service": {"master"}}
	with := func(token string) url.Values {
		f := url.Values{"form": {token}}
		for k, v := range good {
			f[k] = v
		}
		return f
	}

	own := alice.FormToken("/")
	for what, c := range map[string]struct {
		token  string
		header []string
	}{
		"without the token":   {"", nil},
		"with another token":  {bob.FormToken("/"), nil},
		"from another site":   {own, []string{"Sec-Fetch-Site", "cross-site"}},
		"from another origin": {own, []string{"Origin", "https://evil.example"}},
		"as a text":           {own, []string{"Content-Type", "text/plain"}},
		"as JSON":             {own, []string{"Content-Type", "application/json"}},
		"from a neighbour":    {own, []string{"Sec-Fetch-Site", "same-site"}},
		"with a method in it": {"", []string{"X-HTTP-Method-Override", "POST"}},
	} {
		if code, text, _ := alice.Send("POST", "/nodes", with(c.token), c.header...); code != 403 && code != 415 {
			t.Errorf("%s: %d %s", what, code, text)
		}
	}

	for _, path := range []string{"/nodes?" + with(own).Encode(), "/nodes/confirm?" + with(own).Encode()} {
		alice.Get(path)
	}

	if got := s.Verbs(); len(got) > 0 {
		t.Errorf("%q", got)
	}

	if code, text, _ := alice.Send("POST", "/nodes", with(own)); code != 303 ||
		!slices.Equal(s.Verbs(), []string{"restart master n1"}) {
		t.Errorf("the form itself: %d %s", code, text)
	}
}

// TestAttack83NodeNames: what is no name of a node of the cluster reaches no supervisor.
func TestAttack83NodeNames(t *testing.T) {
	t.Parallel()
	a, s := mastertest.StartSupervised(t)
	alice := a.OpenBrowser().LogIn("alice")
	form := alice.FormToken("/")
	names := []string{"", "*", "n2", "../n1", "n1/../n2", "n1 n2", "n1\n", "n1\x00", "-f", "--force",
		mastertest.Hostile, strings.Repeat("n", 5000), "n1;reboot", "$(reboot)", "%2e%2e", "ｎ1"}
	for _, n := range names {
		for _, do := range []string{"drain", "undrain", "restart", "remove", "appliance.drain"} {
			q := url.Values{"form": {form}, "do": {do}, "node": {n}, "service": {"lb"}}
			code, text, h := alice.Send("POST", "/nodes", q)
			if code < 400 || scripts(text) || h.Get("Location") != "" {
				t.Errorf("%s %.50q: %d", do, n, code)
			}

			if code, text := alice.Get("/nodes/confirm?" + q.Encode()); code < 400 || scripts(text) {
				t.Errorf("confirm %s %.50q: %d", do, n, code)
			}
		}
	}

	for _, service := range []string{"", "sshd", "../lb", "observe", "vip", "master ", mastertest.Hostile} {
		if code, _, _ := alice.Send("POST", "/nodes",
			url.Values{"form": {form}, "do": {"restart"}, "node": {"n1"}, "service": {service}}); code != 400 {
			t.Errorf("service %q: %d", service, code)
		}
	}

	// The API is not the console: its names go to the supervisor, which decides, as one word.
	token := a.Token("alice")
	for _, n := range []string{"", "a b", "n1\\n", strings.Repeat("n", 100)} {
		if _, body, _ := a.Do("POST", "/",
			`[{"client": "wheel", "fun": "appliance.drain", "node": "`+n+
				`"}]`, "X-Auth-Token", token); !strings.Contains(body, "is a name") {
			t.Errorf("%q by the API: %s", n, body)
		}
	}

	if got := s.Verbs(); len(got) > 0 {
		t.Errorf("%q", got)
	}

	if code, text := alice.Get("/?done=drain&node=" + url.QueryEscape(mastertest.Hostile) + "&service=" +
		url.QueryEscape(mastertest.Hostile)); code != 200 || strings.Contains(text, `class="notice"`) {
		t.Errorf("a link has the page say something: %s", text)
	}
}

// TestAttack84NodesScripts: names, states and problems of nodes are text on the page,
// and neither in events nor in the job cache.
func TestAttack84NodesScripts(t *testing.T) {
	t.Parallel()
	a, _ := mastertest.StartSupervised(t)
	heard := a.Parts.Bus.Subscribe("test", 1000, event.Prefix("salt/run/"))
	defer heard.Close()

	alice := a.OpenBrowser().LogIn("alice")
	code, text, h := alice.Send("GET", "/", nil)
	if code != 200 || scripts(text) || !strings.Contains(text, "&lt;script&gt;alert(1)") ||
		!strings.Contains(text, "<svg") || strings.Contains(text, "style=") || strings.Contains(text,
		`href="javascript`) {
		t.Errorf("%d %s", code, text)
	}

	if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") ||
		strings.Contains(csp, "unsafe") {
		t.Error(csp)
	}

	if code, text := alice.Get("/audit"); code != 200 || scripts(text) ||
		!strings.Contains(text, "node.drain") || !strings.Contains(text, "Records are missing of n3") {
		t.Errorf("audit: %d %s", code, text)
	}

	if code, text := a.OpenBrowser().LogIn("vera").Get("/audit"); code != 401 || strings.Contains(text, "node.drain") {
		t.Errorf("vera reads the record of all nodes: %d", code)
	}

	for len(heard.C) > 0 {
		if e := <-heard.C; strings.Contains(value.Repr(e.Data), "alert(1)") ||
			strings.Contains(value.Repr(e.Data), "node.drain") {
			t.Errorf("%s is for all: %s", e.Tag, value.Repr(e.Data))
		}
	}
}
