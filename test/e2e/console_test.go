//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// person is somebody at the console, with a browser that runs no scripts.
type person struct {
	base    string
	cookies map[string]string
}

// send asks for a page and follows no redirect; its address is the answer's.
func (p *person) send(t *testing.T, method, path string, form url.Values) (code int, text, to string) {
	t.Helper()
	r, err := http.NewRequest(method, p.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}

	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", p.base)
	}

	for k, v := range p.cookies {
		r.AddCookie(&http.Cookie{Name: k, Value: v})
	}

	c := http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()

	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}

	for _, k := range res.Cookies() {
		p.cookies[k.Name] = k.Value
		if k.MaxAge < 0 {
			delete(p.cookies, k.Name)
		}
	}

	return res.StatusCode, string(b), res.Header.Get("Location")
}

var hidden = regexp.MustCompile(`name="(form|finger|id)" value="([^"]*)"`)

// fields are the hidden fields of the forms of a page.
func (p *person) fields(t *testing.T, path string) url.Values {
	t.Helper()
	code, text, _ := p.send(t, "GET", path, nil)
	f := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(text, -1) {
		if v := strings.NewReplacer("&lt;", "<", "&gt;", ">").Replace(m[2]); !slices.Contains(f[m[1]], v) {
			f.Add(m[1], v)
		}
	}
	if code != 200 || f.Get("form") == "" {
		t.Fatalf("%s: %d %s", path, code, text)
	}
	return f
}

func atConsole(t *testing.T, base, name string) *person {
	t.Helper()
	p := &person{base, map[string]string{}}
	f := p.fields(t, "/console/login")
	f.Set("username", name)
	f.Set("password", "right")
	f.Set("eauth", "sharedsecret")
	if code, text, to := p.send(t, "POST", "/console/login", f); code != 303 || to != "/console/" {
		t.Fatalf("log-in of %s: %d %s", name, code, text)
	}
	return p
}

// runs sends the form of a job, and gives the address of the page of its returns.
func (p *person) runs(t *testing.T, target, fun, arg string) string {
	t.Helper()
	code, text, to := p.send(t, "POST", "/console/run",
		url.Values{
			"form": p.fields(t, "/console/run")["form"],
			"tgt":  {target},
			"type": {"glob"},
			"fun":  {fun},
			"arg":  {arg},
		})
	if code != 303 || !strings.HasPrefix(to, "/console/job?jid=20") {
		t.Fatalf("%s %s: %d %s %s", fun, arg, code, to, text)
	}
	return to
}

// ended waits until a page of a job waits for nobody any more.
func (p *person) ended(t *testing.T, path string) (text string) {
	t.Helper()
	lab.Eventually(t, 90*time.Second, "the returns on "+path, func() error {
		_, text, _ = p.send(t, "GET", path, nil)
		if strings.Contains(text, "data-stream") || !strings.Contains(text, `class="result`) {
			return fmt.Errorf("page: %s", text)
		}
		return nil
	})
	return text
}

const failing = `good:
  file.managed:
    - name: %[1]s/motd
    - contents: welcome <b>here</b>
bad:
  cmd.run:
    - name: echo '<script>alert(1)</script>'; false
    - require: [file: good]
`

// TestConsole has people at the console of a master with a real minion whose name and
// grains are hostile: a key is accepted, jobs are run and shown, a state that failed
// stands first, events come; who may not is refused, and so are forms of others.
func TestConsole(t *testing.T) {
	if lab.Peer() {
		t.Skip("the peer has no console")
	}

	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{Options: map[string]any{
		"external_auth": map[string]any{"sharedsecret": map[string]any{
			"alice": []any{".*", "@runner", "@wheel"}, "bob": []any{"test.ping", map[string]any{"@runner": []any{"jobs\\..*", "presence.minions"}}}}},
		"sharedsecret": "right", "timeout": 5, "gather_job_timeout": 5}})

	dir := lab.Dir(t)
	if err := os.WriteFile(filepath.Join(n.Settings.FileRoot(), "broken.sls"),
		fmt.Appendf(nil, failing, dir), 0o644); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(dir, "motd"), []byte("old\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	for name, text := range map[string]string{
		"top.sls":  "base: {'*': [hush]}\n",
		"hush.sls": "hush: <script>alert(4)</script>\n",
	} {
		if err := os.WriteFile(filepath.Join(n.Settings.PillarRoot(), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	const id = "web<b>1"
	m := lab.StartMinion(t, n, id, lab.Newest,
		map[string]any{"grains": map[string]any{"note": "<script>alert(2)</script>"}})
	a := startAPI(t, n, lab.Bin(t, "salt-api"), "ours", 14001, "  console: true\n")
	alice, bob := atConsole(t, a.base, "alice"), atConsole(t, a.base, "bob")
	has := func(what, text string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", what, want, text)
			}
		}

		for _, bad := range []string{"<script>alert", "<b>"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s: what a minion says is no text: %s", what, text)
			}
		}
	}

	at := "/console/keys/confirm?do=accept&state=minions_pre&id=" + url.QueryEscape(id)
	lab.Eventually(t, time.Minute, "the key", func() error {
		if code, text, _ := alice.send(t, "GET", at, nil); code != 200 {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})

	f := alice.fields(t, at)
	if finger, _ := m.Call(t, "--local", "key.finger").(string); f.Get("finger") == "" || f.Get("finger") != finger {
		t.Errorf("the fingerprint is %q, the minion's %q", f.Get("finger"), finger)
	}

	f.Set("do", "accept")
	f.Set("state", "minions_pre")
	without := url.Values{"do": f["do"], "state": f["state"], "id": f["id"], "finger": f["finger"]}
	if code, _, _ := alice.send(t, "POST", "/console/keys", without); code != 403 {
		t.Errorf("a form without its token: %d", code)
	}

	f.Set("form", bob.fields(t, "/console/")["form"][0])
	if code, text, _ := bob.send(t, "POST", "/console/keys", f); code != 401 {
		t.Errorf("bob and a key: %d %s", code, text)
	}

	if k := n.Keys(t); !slices.Contains(k["pending"], id) {
		t.Fatalf("after what was refused: %v", k)
	}

	f.Set("form", alice.fields(t, "/console/")["form"][0])
	if code, text, to := alice.send(t, "POST", "/console/keys", f); code != 303 ||
		!strings.Contains(to, "done=accept") {
		t.Fatalf("accept: %d %s", code, text)
	}

	if k := n.Keys(t); !slices.Contains(k["accepted"], id) {
		t.Fatalf("after the form: %v", k)
	}

	n.Ping(t, 90*time.Second, id)

	text := alice.ended(t, alice.runs(t, "web*", "test.ping", ""))
	has("ping", text, "web&lt;b&gt;1", ">ok</span>", "<code>True</code>")
	text = alice.ended(t, alice.runs(t, "*", "test.arg", "a\n1\nk=[1, '<script>alert(3)</script>']"))
	has("arguments", text, "&lt;script&gt;alert(3)", "Run again")
	text = alice.ended(t, alice.runs(t, "*", "state.apply", "broken"))
	has("state", text, `class="state failed" open`, "2 states: 1 failed, 1 changed",
		"&lt;script&gt;alert(1)", "&#43;welcome &lt;b&gt;here", "-old")

	if bad, good := strings.Index(text, "cmd.run"), strings.Index(text, "file.managed"); bad < 0 || good < bad {
		t.Errorf("what failed is not first: %d, %d", bad, good)
	}

	_, text, _ = alice.send(t, "GET", "/console/", nil)
	has("overview", text, `presence=connected">connected</a></dt><dd>1</dd>`, "state.apply", "as node1 sees them")
	_, text, _ = alice.send(t, "GET", "/console/minions?type=grain&tgt=note:*script*", nil)
	has("minions", text, "web&lt;b&gt;1", lab.Newest, "1 minion with an accepted key")
	_, text, _ = alice.send(t, "GET", "/console/minion?id="+url.QueryEscape(id), nil)
	has("minion", text, "&lt;script&gt;alert(2)")
	_, text, _ = alice.send(t, "GET", "/console/run?doc=1&tgt=*&fun=test.ping", nil)
	has("documentation", text, "selects 1 minion", "CLI Example")
	_, text, _ = alice.send(t, "GET", "/console/jobs", nil)
	has("jobs", text, "test.arg", "alice")

	if code, text, _ := bob.send(t, "POST", "/console/run",
		url.Values{
			"form": f["form"],
			"tgt":  {"*"},
			"fun":  {"cmd.run"},
			"arg":  {"id"},
		}); code != 403 || !strings.Contains(text, "does not belong") {
		t.Errorf("bob with the token of alice: %d %s", code, text)
	}

	mine := bob.fields(t, "/console/run")["form"]
	if code, text, _ := bob.send(t, "POST", "/console/run",
		url.Values{
			"form": mine,
			"tgt":  {"*"},
			"fun":  {"cmd.run"},
			"arg":  {"id"},
		}); code != 403 || !strings.Contains(text, "does not permit") {
		t.Errorf("bob and cmd.run: %d %s", code, text)
	}

	has("bob's ping", bob.ended(t, bob.runs(t, "*", "test.ping", "")), "True")
	_, text, _ = alice.send(t, "GET", "/console/files", nil)
	has("files", text, "broken.sls", "None is configured.")
	_, text, _ = alice.send(t, "GET", "/console/file?env=base&path=broken.sls", nil)
	has("file", text, "&lt;script&gt;alert(1)", "file.managed:")
	_, text, _ = alice.send(t, "GET", "/console/pillar?id="+url.QueryEscape(id), nil)
	has("pillar", text, "&lt;script&gt;alert(4)")

	for _, path := range []string{"/console/files", "/console/file?env=base&path=broken.sls",
		"/console/pillar?id=" + url.QueryEscape(id)} {
		if code, text, _ := bob.send(t, "GET", path, nil); code != 401 {
			t.Errorf("bob at %s: %d %s", path, code, text)
		}
	}

	_, text, _ = alice.send(t, "GET", "/console/audit", nil)
	has("audit", text, "key.accept", "web&lt;b&gt;1", "state.apply", "127.0.0.1", "console or API",
		"bob", "sharedsecret, with a token", "refused")
	if code, _, _ := bob.send(t, "GET", "/console/audit", nil); code != 401 {
		t.Errorf("bob and the audit record: %d", code)
	}

	consoleEvents(t, alice, m)
}

// consoleEvents has a minion fire an event and finds it, and not others, in the stream.
func consoleEvents(t *testing.T, p *person, m *lab.Minion) {
	t.Helper()
	_, text, _ := p.send(t, "GET", "/console/events?tag=salt/minion/*", nil)
	if !strings.Contains(text, `data-stream="/console/stream?tag=salt%2Fminion%2F%2A"`) {
		t.Errorf("events: %s", text)
	}

	r, err := http.NewRequest("GET", p.base+"/console/stream?tag=my/*", nil)
	if err != nil {
		t.Fatal(err)
	}

	for k, v := range p.cookies {
		r.AddCookie(&http.Cookie{Name: k, Value: v})
	}

	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { res.Body.Close() })
	s := bufio.NewScanner(res.Body)
	s.Buffer(nil, 1<<20)
	if !s.Scan() || s.Text() != "retry: 400" {
		t.Fatalf("stream: %s %q", res.Status, s.Text())
	}

	got := make(chan string, 1)
	go func() {
		for s.Scan() {
			if s.Text() != "" {
				got <- s.Text()
				return
			}
		}
		got <- "the end"
	}()

	lab.Eventually(t, time.Minute, "the event", func() error {
		m.Call(t, "event.send", "my/event", `{"x": "<b>"}`)
		select {
		case l := <-got:
			if l != "tag: my/event" {
				t.Errorf("first line %q", l)
			}
			return nil
		case <-time.After(time.Second):
			return fmt.Errorf("nothing yet")
		}
	})
}
