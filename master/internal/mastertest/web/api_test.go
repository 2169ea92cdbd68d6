package web

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestAttack37NothingWithoutALogin: no command, job, key, event or hook without a
// token or a password that the master takes, by any client and with any key in the
// command (CVE-2020-16846, CVE-2020-25592, CVE-2021-25281, CVE-2021-3144).
func TestAttack37NothingWithoutALogin(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "")
	key, err := os.ReadFile(a.Path("cache", ".root_key"))
	if errors.Is(err, os.ErrNotExist) {
		entries, _ := os.ReadDir(a.Path("cache"))
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), "_key") {
				key, err = os.ReadFile(a.Path("cache", e.Name()))
			}
		}
	}

	check.Must(t, err)
	sub := a.Parts.Bus.Subscribe("test", 1000, nil)
	defer sub.Close()

	for _, client := range []string{"local", "local_async", "local_batch", "local_subset", "runner",
		"runner_async", "wheel", "wheel_async", "ssh"} {
		for _, cred := range []string{`"key": "` + string(key) + `", "user": "root"`,
			`"key": "` + string(key) + `", "user": "root", "token": "` + strings.Repeat("ab", 32) + `"`,
			`"token": null`, `"eauth": "sharedsecret", "username": "alice", "password": "wrong", "key": "` +
				string(key) + `"`} {
			fun := map[bool]string{true: "key.list_all", false: "test.ping"}[strings.HasPrefix(client, "wheel")]
			code, body, _ := a.Do("POST", "/run", `[{"client": "`+client+`", "tgt": "*", "fun": "`+fun+`", `+cred+`}]`)
			if code != 401 && code != 429 && !(client == "ssh" && code == 400) {
				t.Errorf("%s with %.40s: %d %s", client, cred, code, body)
			}
		}
	}

	for _, p := range []string{"POST /", "GET /minions", "POST /minions", "GET /jobs", "GET /keys",
		"GET /stats", "GET /events", "POST /hook/x", "POST /logout"} {
		method, path, _ := strings.Cut(p, " ")
		if code, body, h := a.Do(method, path, "", "X-Auth-Token", "x", "Cookie", "session_id=../../x"); code != 401 || h.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %s %s", p, code, body, h.Get("Set-Cookie"))
		}
	}

	for len(sub.C) > 0 {
		if e := <-sub.C; !strings.HasPrefix(e.Tag, "salt/auth") && !strings.HasPrefix(e.Tag, "minion_start") {
			t.Errorf("event %s", e.Tag)
		}
	}

	token := a.Token("alice") // that it was not the budget alone
	if code, body, _ := a.Do("POST", "/", `[{"client": "wheel", "fun": "key.list_all"}]`, "X-Auth-Token",
		token); code != 200 || !strings.Contains(body, "minions_pre") {
		t.Errorf("with a token: %d %s", code, body)
	}
}

// TestAttack37RawShell: neither raw_shell nor a client that is not enabled, nor a
// name that is none (CVE-2020-16846, CVE-2021-3197, CVE-2021-25282).
func TestAttack37RawShell(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "")
	token := a.Token("alice")
	for _, low := range []string{`"client": "ssh", "raw_shell": true`, `"client": "ssh", "ssh_priv": "|id"`,
		`"client": "local", "raw_shell": 1`,
		`"client": "_prep_auth_info"`, `"client": ["local"]`, `"client": null`, `"client": "destroy"`, `"client": "run"`} {
		if code, body, _ := a.Do("POST", "/", `[{"tgt": "*", "fun": "test.ping", `+low+`}]`, "X-Auth-Token",
			token); code != 400 && code != 401 {
			t.Errorf("%s: %d %s", low, code, body)
		}
	}
}

// TestAttack37Rights: a token does what external_auth grants its owner; a token or
// a name in the command does not change that.
func TestAttack37Rights(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "")
	bob, alice := a.Token("bob"), a.Token("alice")
	for _, low := range []string{`"client": "local", "tgt": "*", "fun": "cmd.run", "arg": ["id"]`,
		`"client": "runner", "fun": "jobs.list_jobs"`,
		`"client": "runner_async", "fun": "jobs.list_jobs"`, `"client": "wheel", "fun": "key.list_all"`, `"client": "wheel_async", "fun": "key.list_all"`} {
		for _, more := range []string{"", `, "token": "` + alice + `"`,
			`, "user": "alice", "username": "alice"`, `, "eauth": "sharedsecret"`, `, "__user__": "root"`} {
			if code, body, _ := a.Do("POST", "/", `[{`+low+more+`}]`, "X-Auth-Token", bob); code != 401 {
				t.Errorf("%s%s: %d %s", low, more, code, body)
			}
		}
	}
}

// TestAttack37Sessions: a log-in takes no session that the client brings, a log-out
// ends the token at the master, and an address that guesses is refused.
func TestAttack37Sessions(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "")
	chosen := strings.Repeat("cd", 32)
	code, _, h := a.Do("POST", "/login",
		`{"username": "alice", "password": "right", "eauth": "sharedsecret"}`, "Cookie",
		"session_id="+chosen, "X-Auth-Token", chosen)
	token := h.Get("X-Auth-Token")
	if code != 200 || token == chosen || strings.Contains(h.Get("Set-Cookie"), chosen) {
		t.Fatalf("log-in: %d %s", code, h)
	}

	for _, want := range []string{"session_id=" + token, "HttpOnly", "SameSite=Lax"} {
		if !strings.Contains(h.Get("Set-Cookie"), want) {
			t.Errorf("cookie without %s: %s", want, h.Get("Set-Cookie"))
		}
	}

	if code, _, _ := a.Do("POST", "/", "[]", "X-Auth-Token", chosen); code != 401 {
		t.Errorf("the chosen session: %d", code)
	}

	if code, _, _ := a.Do("POST", "/logout", "", "X-Auth-Token", token); code != 200 {
		t.Errorf("log-out: %d", code)
	}

	if v, _ := a.AskInClear("get_token", "token", token).(*value.Map); v.Len() != 0 {
		t.Errorf("the master still knows the token: %v", v)
	}

	limited := 0
	for range 60 {
		if code, _, _ := a.Do("POST", "/", "[]", "X-Auth-Token", chosen); code == 429 {
			limited++
		}
	}

	if limited < 20 {
		t.Errorf("of 60 guesses %d were refused at once", limited)
	}

	if code, _, _ := a.Do("POST", "/login",
		`{"username": "alice", "password": "wrong", "eauth": "sharedsecret"}`); code != 429 {
		t.Errorf("a log-in after that: %d", code)
	}
}

// TestAttack37Bodies: bodies without end, too large, too deep or with too much in
// them are refused, and no stranger's body is read.
func TestAttack37Bodies(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "max_request_body_size: 65536\n")
	token := a.Token("alice")
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for name, c := range map[string]struct {
		body string
		want int
		kind string
	}{
		"large":     {strings.Repeat(" ", 65537), 413, "application/json"},
		"deep":      {deep, 400, "application/json"},
		"deep yaml": {deep, 400, "application/x-yaml"},
		"aliases": {"a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g]\n",
			400, "text/yaml"},
		"python":      {"!!python/object/apply:os.system [id]", 400, "text/yaml"},
		"large whole": {"[123456789012345678901234567890]", 400, "application/json"},
	} {
		if code, body, _ := a.Do("POST", "/", c.body, "X-Auth-Token", token, "Content-Type", c.kind); code != c.want {
			t.Errorf("%s: %d %.200s", name, code, body)
		}
	}

	r, w := io.Pipe()
	defer w.Close()
	req, err := http.NewRequest("POST", a.URL+"/", r)
	check.Must(t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req) // nothing of the body is ever sent
	if err == nil {
		res.Body.Close()
	}

	if err != nil || res.StatusCode != 401 {
		t.Errorf("a stranger's body: %v %v", res, err)
	}
}

// TestAttack37Static: no name and no link leads out of static.
func TestAttack37Static(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "static: %DIR%/static\n")
	if code, _, _ := a.Do("GET", "/static/a.txt", ""); code != 404 { // made below
		t.Errorf("static: %d", code)
	}

	check.Must(t, os.WriteFile(a.Path("static", "a.txt"), []byte("hello"), 0o644))
	check.Must(t, os.Symlink(a.Path("master"), a.Path("static", "link")))
	if code, body, _ := a.Do("GET", "/static/a.txt", ""); code != 200 || body != "hello" {
		t.Errorf("a file: %d %s", code, body)
	}

	for _, p := range []string{"/static/../master", "/static/%2e%2e/master", "/static/%2e%2e%2fmaster",
		"/static/..%5cmaster", "/static/link", "/static//" + a.Path("master"),
		"/static/x/../../master", "/static/a.txt%00", "/static/.", "/static/"} {
		if code, body, _ := a.Do("GET", p, ""); code != 403 && code != 404 || strings.Contains(body, "ret_port") {
			t.Errorf("%s: %d %s", p, code, body)
		}
	}
}

// TestAttack37Lines: line breaks in the path of a hook, in a tag or a header make no
// line of their own for readers of events, and nobody reads a token there.
func TestAttack37Lines(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "webhook_disable_auth: true\n")
	token := a.Token("alice")
	req, err := http.NewRequest("GET", a.URL+"/events", nil)
	check.Must(t, err)
	req.Header.Set("X-Auth-Token", token)
	res, err := http.DefaultClient.Do(req)
	check.Must(t, err)
	defer res.Body.Close()

	if ct := res.Header.Get("Content-Type"); res.StatusCode != 200 || ct != "text/event-stream;charset=utf-8" {
		t.Fatalf("events: %d %s", res.StatusCode, ct)
	}

	lines := bufio.NewScanner(res.Body)
	if !lines.Scan() || lines.Text() != "retry: 400" {
		t.Fatalf("first line %q", lines.Text())
	}

	for _, p := range []string{"/hook/a%0atag:%20x", "/hook/a%0d%0ab", "/hook/%00",
		"/hook/" + strings.Repeat("x", 5000)} {
		if code, _, _ := a.Do("POST", p, ""); code != 400 {
			t.Errorf("%.30s: %d", p, code)
		}
	}

	a.AwaitEvent(lines, "test/begin")
	check.Must(t, a.Parts.Bus.Fire("evil\ndata: {\"forged\": 1}", value.NewMap("x", "a\n\ndata: forged\r\n")))
	if code, _, _ := a.Do("POST", "/hook/last", `{"a": "b\nc"}`, "X-Auth-Token", token, "Cookie",
		"session_id="+token); code != 200 {
		t.Errorf("hook: %d", code)
	}

	for lines.Scan() {
		l := lines.Text()
		if l != "" && !strings.HasPrefix(l, "tag: ") && !strings.HasPrefix(l, `data: {"tag": `) {
			t.Errorf("line %q", l)
		}

		if strings.Contains(l, token) {
			t.Errorf("the token is in an event: %s", l)
		}

		if strings.HasPrefix(l, "data: ") && strings.Contains(l, "salt/netapi/hook/last") {
			return
		}
	}

	t.Error("the stream ended before the last event")
}

// TestAttack37SlowReader: whoever asks for events and does not take them is cut, and
// others get theirs meanwhile.
func TestAttack37SlowReader(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "")
	token := a.Token("alice")
	dial := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(a.URL, "http://"))
		check.Must(t, err)
		t.Cleanup(func() { c.Close() })
		_, err = io.WriteString(c, "GET /events HTTP/1.1\r\nHost: x\r\nX-Auth-Token: "+token+"\r\n\r\n")
		check.Must(t, err)
		return c
	}

	slow, good := dial(), dial()
	check.Must(t, slow.(*net.TCPConn).SetReadBuffer(4096))
	seen := make(chan struct{}, 1)
	var got, begun atomic.Int64
	go func() {
		s := bufio.NewScanner(good)
		s.Buffer(nil, 4<<20)
		for s.Scan() {
			switch s.Text() {
			case "tag: salt/test/begin":
				begun.Add(1)
			case "tag: salt/test/big":
				got.Add(1)
			case "tag: salt/test/end":
				seen <- struct{}{}
				return
			}
		}
	}()

	await.That(t, "a reader of events", func() bool {
		check.Must(t, a.Parts.Bus.Fire("salt/test/begin", value.NewMap()))
		return begun.Load() > 0
	})

	stat := func(name string) string {
		_, body, _ := a.Do("GET", "/stats", "", "X-Auth-Token", token)
		_, rest, _ := strings.Cut(body, `"`+name+`": `)
		n, _, _ := strings.Cut(rest, ",")
		return strings.TrimRight(n, "}")
	}

	await.That(t, "both readers", func() bool { return stat("Event Readers") == "2" })
	big := strings.Repeat("x", 256<<10)
	sub := a.Parts.Bus.Subscribe("test", 10, event.Prefix("never"))
	defer sub.Close()

	fired := int64(0)
	await.That(t, "the slow one being cut", func() bool {
		for range 4 {
			check.Must(t, a.Parts.Bus.Fire("salt/test/big", value.NewMap("x", big)))
			fired++
		}
		// No faster than the other one takes them: it is not to be cut.
		await.That(t, "the other reader having them", func() bool { return got.Load() == fired })
		return stat("Cut Readers") != "0"
	})

	check.Must(t, a.Parts.Bus.Fire("salt/test/end", value.NewMap()))
	select {
	case <-seen:
	case <-time.After(20 * time.Second):
		t.Error("the other reader did not get the last event")
	}
}
