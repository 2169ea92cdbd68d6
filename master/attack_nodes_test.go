package master

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/localsock"
	"saltern/master/event"
	"saltern/master/value"
)

// supervised is a supervisor whose cluster has the names of somebody hostile.
type supervised struct {
	mu    sync.Mutex
	acted []control.By
	verbs []string
}

func (s *supervised) Appliance(context.Context) (control.Appliance, error) {
	evil := hostile + "<script>alert(1)</script>"
	return control.Appliance{Node: "n1", Health: evil, Cluster: evil, Address: evil, Holders: []string{evil},
		Nodes: []control.NodeState{
			{Name: "n1", This: true, State: "ready", Role: "voter"},
			{Name: evil, State: evil, Role: evil, Master: evil, Storage: evil},
		},
		Services: []control.Service{{Name: evil, State: evil, Message: evil}}, Storage: control.Space{Kind: evil},
		Findings: []control.NodeProblem{{
			Code:    evil,
			Title:   evil,
			Subject: `javascript:alert(1)`,
			Cause:   evil,
			Next:    evil,
		}}}, nil
}

func (s *supervised) Course(context.Context) (control.Course, error) {
	n := 5.0
	return control.Course{
		Nodes:   []control.Series{{Node: hostile, Points: []control.Point{{At: time.Now(), Minions: &n}}}},
		Unasked: map[string]string{hostile: hostile},
	}, nil
}

func (s *supervised) Records(context.Context, control.Question) (json.RawMessage, error) {
	r := audit.Record{
		Time:    time.Now(),
		Node:    hostile,
		Program: "applianced",
		Actor:   audit.Actor{User: "alice", Proof: audit.Login, From: audit.Local},
		Action:  "node.drain",
		Object:  "n3",
		Result:  audit.OK,
	}
	return json.Marshal(audit.List{
		Page:    audit.Page{Records: []audit.Record{r}},
		Unasked: map[string]string{"n3": hostile},
	})
}

func (s *supervised) Drain(_ context.Context, q control.Drain) error {
	return s.act(q.By, "drain "+q.Node)
}

func (s *supervised) Restart(_ context.Context, q control.Restart) error {
	return s.act(q.By, "restart "+q.Service+" "+q.Node)
}

func (s *supervised) Newest(context.Context, control.NewestQuestion) (control.Newest, error) {
	return control.Newest{Direct: true}, nil
}

func (s *supervised) act(by control.By, verb string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acted, s.verbs = append(s.acted, by), append(s.verbs, verb)
	return nil
}

func (s *supervised) did() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.verbs)
}

// startSupervised is startAPI on a node with a supervisor.
func startSupervised(t *testing.T) (*api, *supervised) {
	t.Helper()
	dir, err := os.MkdirTemp("", "door")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "door")
	ln, err := localsock.Listen(path, 0o600, -1)
	must(t, err)
	s := &supervised{}
	door := control.ServeDoor(ln, os.Geteuid(), s, slog.New(slog.DiscardHandler))
	t.Cleanup(door.Close)
	return startAPIWith(t, "saltern_door: "+path+"\n", "console: true\n"), s
}

// TestAttack81ViewerActs: who may look at the nodes, or call all runners, does nothing to
// them, by the page, a form that he made himself or the API; who may is named to the
// supervisor with his address.
func TestAttack81ViewerActs(t *testing.T) {
	t.Parallel()
	a, s := startSupervised(t)
	vera := a.browser().logIn("vera")
	if code, text := vera.get("/"); code != 200 || !strings.Contains(text, "Nodes of") ||
		strings.Contains(text, "/nodes/confirm") {
		t.Errorf("vera: %d %s", code, text)
	}

	drain := url.Values{"form": {vera.form("/")}, "do": {"drain"}, "node": {"n1"}}
	if code, text, _ := vera.send("POST", "/nodes", drain); code != 403 {
		t.Errorf("vera drains by a form: %d %s", code, text)
	}

	for _, user := range []string{"vera", "bob"} {
		token := a.token(user)
		for fun, rest := range map[string]string{
			"appliance.drain":   "",
			"appliance.undrain": "",
			"appliance.restart": `, "service": "lb"`,
		} {
			for _, client := range []string{"wheel", "wheel_async", "runner", "local"} {
				low := `[{"client": "` + client + `", "tgt": "*", "fun": "` + fun + `", "node": "n1"` + rest + `}]`
				if code, body, _ := a.do("POST", "/", low, "X-Auth-Token", token); code == 200 &&
					!strings.Contains(body, "is not available") && !strings.Contains(body, `"return": [{}]`) {
					t.Errorf("%s by %s %s: %d %s", user, client, fun, code, body)
				}
			}
		}
	}

	bob := a.browser().logIn("bob")
	if _, text := bob.get("/"); strings.Contains(text, "Nodes of") {
		t.Error("bob sees the nodes")
	}

	if got := s.did(); len(got) > 0 {
		t.Fatalf("%q", got)
	}

	alice := a.browser().logIn("alice")
	drain.Set("form", alice.form("/"))
	if code, text, h := alice.send("POST", "/nodes", drain); code != 303 ||
		!strings.HasPrefix(h.Get("Location"), "/console/?done=drain") {
		t.Fatalf("alice: %d %s", code, text)
	}

	if by := s.acted; len(by) != 1 || by[0].User != "alice" || by[0].Eauth != "sharedsecret" ||
		by[0].Proof != "token" || by[0].From != "127.0.0.1" || by[0].Via != "salt-api" {
		t.Errorf("%+v", by)
	}
}

// TestAttack82DrainFromElsewhere: no other site has a browser drain or restart a node.
func TestAttack82DrainFromElsewhere(t *testing.T) {
	t.Parallel()
	a, s := startSupervised(t)
	alice, bob := a.browser().logIn("alice"), a.browser().logIn("bob")
	good := url.Values{"do": {"restart"}, "node": {"n1"}, "service": {"master"}}
	with := func(token string) url.Values {
		f := url.Values{"form": {token}}
		for k, v := range good {
			f[k] = v
		}
		return f
	}

	own := alice.form("/")
	for what, c := range map[string]struct {
		token  string
		header []string
	}{
		"without the token":   {"", nil},
		"with another token":  {bob.form("/"), nil},
		"from another site":   {own, []string{"Sec-Fetch-Site", "cross-site"}},
		"from another origin": {own, []string{"Origin", "https://evil.example"}},
		"as a text":           {own, []string{"Content-Type", "text/plain"}},
		"as JSON":             {own, []string{"Content-Type", "application/json"}},
		"from a neighbour":    {own, []string{"Sec-Fetch-Site", "same-site"}},
		"with a method in it": {"", []string{"X-HTTP-Method-Override", "POST"}},
	} {
		if code, text, _ := alice.send("POST", "/nodes", with(c.token), c.header...); code != 403 && code != 415 {
			t.Errorf("%s: %d %s", what, code, text)
		}
	}

	for _, path := range []string{"/nodes?" + with(own).Encode(), "/nodes/confirm?" + with(own).Encode()} {
		alice.get(path)
	}

	if got := s.did(); len(got) > 0 {
		t.Errorf("%q", got)
	}

	if code, text, _ := alice.send("POST", "/nodes", with(own)); code != 303 ||
		!slices.Equal(s.did(), []string{"restart master n1"}) {
		t.Errorf("the form itself: %d %s", code, text)
	}
}

// TestAttack83NodeNames: what is no name of a node of the cluster reaches no supervisor.
func TestAttack83NodeNames(t *testing.T) {
	t.Parallel()
	a, s := startSupervised(t)
	alice := a.browser().logIn("alice")
	form := alice.form("/")
	names := []string{"", "*", "n2", "../n1", "n1/../n2", "n1 n2", "n1\n", "n1\x00", "-f", "--force",
		hostile, strings.Repeat("n", 5000), "n1;reboot", "$(reboot)", "%2e%2e", "ｎ1"}
	for _, n := range names {
		for _, do := range []string{"drain", "undrain", "restart", "remove", "appliance.drain"} {
			q := url.Values{"form": {form}, "do": {do}, "node": {n}, "service": {"lb"}}
			code, text, h := alice.send("POST", "/nodes", q)
			if code < 400 || scripts(text) || h.Get("Location") != "" {
				t.Errorf("%s %.50q: %d", do, n, code)
			}

			if code, text := alice.get("/nodes/confirm?" + q.Encode()); code < 400 || scripts(text) {
				t.Errorf("confirm %s %.50q: %d", do, n, code)
			}
		}
	}

	for _, service := range []string{"", "sshd", "../lb", "observe", "vip", "master ", hostile} {
		if code, _, _ := alice.send("POST", "/nodes",
			url.Values{"form": {form}, "do": {"restart"}, "node": {"n1"}, "service": {service}}); code != 400 {
			t.Errorf("service %q: %d", service, code)
		}
	}

	// The API is not the console: its names go to the supervisor, which decides, as one word.
	token := a.token("alice")
	for _, n := range []string{"", "a b", "n1\\n", strings.Repeat("n", 100)} {
		if _, body, _ := a.do("POST", "/",
			`[{"client": "wheel", "fun": "appliance.drain", "node": "`+n+
				`"}]`, "X-Auth-Token", token); !strings.Contains(body, "is a name") {
			t.Errorf("%q by the API: %s", n, body)
		}
	}

	if got := s.did(); len(got) > 0 {
		t.Errorf("%q", got)
	}

	if code, text := alice.get("/?done=drain&node=" + url.QueryEscape(hostile) + "&service=" +
		url.QueryEscape(hostile)); code != 200 || strings.Contains(text, `class="notice"`) {
		t.Errorf("a link has the page say something: %s", text)
	}
}

// TestAttack84NodesScripts: names, states and problems of nodes are text on the page,
// and neither in events nor in the job cache.
func TestAttack84NodesScripts(t *testing.T) {
	t.Parallel()
	a, _ := startSupervised(t)
	heard := a.m.bus.Subscribe("test", 1000, event.Prefix("salt/run/"))
	defer heard.Close()

	alice := a.browser().logIn("alice")
	code, text, h := alice.send("GET", "/", nil)
	if code != 200 || scripts(text) || !strings.Contains(text, "&lt;script&gt;alert(1)") ||
		!strings.Contains(text, "<svg") || strings.Contains(text, "style=") || strings.Contains(text,
		`href="javascript`) {
		t.Errorf("%d %s", code, text)
	}

	if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") ||
		strings.Contains(csp, "unsafe") {
		t.Error(csp)
	}

	if code, text := alice.get("/audit"); code != 200 || scripts(text) ||
		!strings.Contains(text, "node.drain") || !strings.Contains(text, "Without n3") {
		t.Errorf("audit: %d %s", code, text)
	}

	if code, text := a.browser().logIn("vera").get("/audit"); code != 401 || strings.Contains(text, "node.drain") {
		t.Errorf("vera reads the record of all nodes: %d", code)
	}

	for len(heard.C) > 0 {
		if e := <-heard.C; strings.Contains(value.Repr(e.Data), "alert(1)") ||
			strings.Contains(value.Repr(e.Data), "node.drain") {
			t.Errorf("%s is for all: %s", e.Tag, value.Repr(e.Data))
		}
	}
}
