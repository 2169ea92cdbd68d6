package web

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/check"
)

// busOptions are those of the scenario: people of two systems, of whom some have the same name.
const busOptions = `external_auth:
  sharedsecret:
    alice: ['.*', '@runner', '@wheel']
    otto:
      - 'web*': ['.*']
      - '@runner': [test.arg, 'jobs\.active']
    vera:
      - '@runner': [test.arg, 'jobs\.list_.*']
    nora: []
    eva: ['@events', '@runner': [test.arg]]
    hugo: ['@hook']
  file:
    ^filename: %DIR%/users
    ^hashtype: plaintext
    otto: ['@runner': [test.arg]]
sharedsecret: right
netapi_enable_clients: [local, local_async, runner, runner_async, wheel]
rest_cherrypy:
  disable_ssl: true
  host: 127.0.0.1
  port: 1
  console: true
`

// stream reads events until the last one of its reader.
type stream struct {
	a     *mastertest.API
	lines *bufio.Scanner
	text  strings.Builder
}

func openStream(a *mastertest.API, path string, header ...string) *stream {
	a.T.Helper()
	r, err := http.NewRequest("GET", a.URL+path, nil)
	check.Must(a.T, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}

	res, err := http.DefaultClient.Do(r)
	check.Must(a.T, err)
	a.T.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != 200 {
		a.T.Fatalf("%s: %d", path, res.StatusCode)
	}

	s := &stream{a: a, lines: bufio.NewScanner(res.Body)}
	s.lines.Buffer(nil, 4<<20)
	return s
}

// until reads until a line holds a text, and gives all that came.
func (s *stream) until(mark string) string {
	s.a.T.Helper()
	for s.lines.Scan() {
		s.text.WriteString(s.lines.Text() + "\n")
		if strings.Contains(s.lines.Text(), mark) {
			return s.text.String()
		}
	}
	s.a.T.Fatalf("the stream ended before %s: %s", mark, s.text.String())
	return ""
}

// TestBusIsNoPublicSquare: one master and one salt-api. Who is granted nothing gets no
// log-in, and cannot tell that from a wrong password; who has limited rights reads the events
// of his own jobs, and fires no hooks; a page of a sibling host has nothing done. (Findings
// 8b, 21 and 27 of the second audit, and the events of 3.)
func TestBusIsNoPublicSquare(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "saltern")
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	check.Must(t, os.WriteFile(dir+"/users", []byte("otto:his\nnils:his\n"), 0o600))
	a := mastertest.ServeAPI(t, mastertest.StartIn(t, dir, busOptions))
	t.Run("no grant", func(t *testing.T) { nobodyLogsIn(t, a) })
	t.Run("own events", func(t *testing.T) { ownEvents(t, a) })
	t.Run("hooks", func(t *testing.T) { hooksWantARight(t, a) })
	t.Run("sibling", func(t *testing.T) { siblingsPage(t, a) })
}

// pageTime is the time at which a page was made.
var pageTime = regexp.MustCompile(` data-now="[^"]*"`)

// nobodyLogsIn compares the answers to a right password of somebody who is granted nothing
// with those to a wrong one, by every way in.
func nobodyLogsIn(t *testing.T, a *mastertest.API) {
	type person struct{ system, user, password string }
	ask := func(who person) map[string]string {
		creds := fmt.Sprintf(`"username": %q, "password": %q, "eauth": %q`, who.user, who.password, who.system)
		load := func(more ...any) []any {
			return append([]any{"eauth", who.system, "username", who.user, "password", who.password}, more...)
		}
		ways := map[string]func() string{"console": func() string {
			b := a.OpenBrowser()
			code, text, _ := b.Send("POST", "/login",
				url.Values{
					"form":     {b.FormToken("/login")},
					"username": {who.user},
					"password": {who.password},
					"eauth":    {who.system},
				})

			return fmt.Sprint(code, pageTime.ReplaceAllString(mastertest.FormField.ReplaceAllString(text, ""), ""))
		}}

		for path, body := range map[string]string{
			"/login": "{" + creds + "}",
			"/token": "[{" + creds + "}]",
			"/run":   `[{"client": "local", "tgt": "*", "fun": "test.ping", ` + creds + `}]`,
		} {
			ways[path] = func() string {
				code, text, h := a.Do("POST", path, body)
				return fmt.Sprint(code, text, h.Get("X-Auth-Token"), h.Get("Set-Cookie"))
			}
		}

		for cmd, fields := range map[string][]any{
			"mk_token": load(),
			"runner":   load("fun", "test.arg", "kwarg", value.NewMap()),
			"wheel":    load("fun", "key.list_all"),
			"publish": {"tgt", "*", "fun", "saltutil.find_job", "arg", []any{}, "tgt_type", "glob", "ret",
				"", "jid", "", "kwargs", value.NewMap(load()...)},
		} {
			ways[cmd] = func() string { return value.Repr(a.AskInClear(cmd, fields...)) }
		}

		var mu sync.Mutex
		var asks sync.WaitGroup
		answers := map[string]string{}
		for what, way := range ways {
			asks.Go(func() {
				answer := strings.ReplaceAll(way(), who.user, "NAME")
				mu.Lock()
				defer mu.Unlock()
				answers[what] = answer
			})
		}

		asks.Wait()
		return answers
	}

	// Each refusal takes a second: people are asked side by side. More than these would be
	// too many wrong log-ins of one address.
	people := []person{
		{"sharedsecret", "nora", "right"},
		{"sharedsecret", "nora", "wrong"},
		{"file", "nils", "his"},
		{"file", "nils", "wrong"},
	}

	all := make([]map[string]string, len(people))
	var asks sync.WaitGroup
	for i, who := range people {
		asks.Go(func() { all[i] = ask(who) })
	}

	asks.Wait()
	for i, wrong := range map[int]int{0: 1, 2: 3} {
		for what, answer := range all[i] {
			if answer != all[wrong][what] || what == "/login" && !strings.HasPrefix(answer, "401") {
				t.Errorf("%s of %s: %.300s\nand with a wrong password %.300s", what, people[i].user, answer,
					all[wrong][what])
			}
		}
	}

	if log := a.Log.String(); !strings.Contains(log, "external_auth grants this account nothing") {
		t.Error("the log does not tell the administrator")
	}

	if s := a.Parts.Callers.Auth.Stats(); s.Ungranted == 0 || s.Lockout.Locked != 0 {
		t.Errorf("%+v", s)
	}
}

func ownEvents(t *testing.T, a *mastertest.API) {
	a.T = t
	web := a.AcceptedMinion("web1", "min8")
	db := a.AcceptedMinion("db1", "min6")
	login := func(system, user, password string) string {
		code, body, h := a.Do("POST", "/login",
			fmt.Sprintf(`{"username": %q, "password": %q, "eauth": %q}`, user, password, system))
		if code != 200 {
			t.Fatalf("log-in of %s: %d %s", user, code, body)
		}
		return h.Get("X-Auth-Token")
	}

	tokens := map[string]string{
		"alice": login("sharedsecret", "alice", "right"),
		"otto":  login("sharedsecret", "otto", "right"),
		"other": login("file", "otto", "his"),
		"vera":  login("sharedsecret", "vera", "right"),
		"eva":   login("sharedsecret", "eva", "right"),
	}

	streams := map[string]*stream{"alice": openStream(a, "/events", "X-Auth-Token", tokens["alice"])}
	a.AwaitEvent(streams["alice"].lines, "test/begin")
	for _, who := range []string{"otto", "other", "vera", "eva"} {
		streams[who] = openStream(a, "/events", "X-Auth-Token", tokens[who])
	}

	job := func(who, target, arg string) (jid string) {
		code, body, _ := a.Do("POST", "/minions",
			`{"tgt": "`+target+`", "fun": "cmd.run", "arg": ["`+arg+`"]}`, "X-Auth-Token", tokens[who])
		_, rest, ok := strings.Cut(body, `"jid": "`)
		if code != 202 || !ok {
			t.Fatalf("a job of %s: %d %s", who, code, body)
		}
		return rest[:20]
	}

	runner := func(who, arg string) {
		if code, body, _ := a.Do("POST", "/",
			`[{"client": "runner", "fun": "test.arg", "arg": ["`+arg+`"]}]`, "X-Auth-Token", tokens[who]); code != 200 {
			t.Fatalf("a runner of %s: %d %s", who, code, body)
		}
	}

	// A job that ran before its owner's stream is known by the master.
	alices := job("alice", "db1", "echo password=hunter3")
	ottos := job("otto", "web1", "echo ottos")
	db.Ask("_return", "jid", alices, "fun", "cmd.run", "fun_args", []any{}, "return", "output-of-alice",
		"retcode", 0, "success", true)
	web.Ask("_minion_event", "tag", "salt/job/"+ottos+"/prog/web1/0", "data",
		value.NewMap("progress-of-otto", 1), "pretag", nil)
	web.Ask("_return", "jid", ottos, "fun", "cmd.run", "fun_args", []any{}, "return", "output-of-otto",
		"retcode", 0, "success", true)
	check.Must(t, a.Parts.Bus.Fire("salt/key", value.NewMap("act", "accept", "id", "some-key")))

	if code, _, _ := a.Do("POST", "/hook/x", `{"hook-body": 1}`, "X-Auth-Token", tokens["alice"]); code != 200 {
		t.Fatalf("hook: %d", code)
	}

	root := a.Publish("web1", "test.ping", "user", "otto", "arg", []any{"roots-argument"}) // by root's key, under his name
	if root.Str("jid") == "" {
		t.Fatal("no job of root")
	}

	for _, who := range []string{"alice", "otto", "other", "vera", "eva"} {
		runner(who, "runner-of-"+who)
		runner(who, "end-of-"+who)
	}

	all := []string{"hunter3", "output-of-alice", "echo ottos", "progress-of-otto", "output-of-otto",
		"some-key", "hook-body", "roots-argument", "runner-of-alice", "runner-of-otto", "runner-of-other",
		"runner-of-vera", "runner-of-eva"}
	for who, sees := range map[string][]string{
		"otto":  {"echo ottos", "progress-of-otto", "output-of-otto", "runner-of-otto"},
		"other": {"runner-of-other"},
		"vera":  {"runner-of-vera"},
		"eva":   all, "alice": all,
	} {
		var text string
		if last := "end-of-" + who; len(sees) == len(all) {
			text = streams[who].until("end-of-eva")
		} else {
			text = streams[who].until(last)
		}

		for _, what := range all {
			if want := strings.Contains(fmt.Sprint(sees), what); strings.Contains(text, what) != want {
				t.Errorf("%s sees %s: %v", who, what, !want)
			}
		}
	}

	jobStarted := job("otto", "web1", "echo later") // before anybody listens anew
	b := a.OpenBrowser().LogIn("vera")
	if _, text := b.Get("/events"); !strings.Contains(text, "@events") {
		t.Errorf("the page of events does not say whose they are: %s", text)
	}

	cookie := "saltern_console=" + b.Cookies["saltern_console"]
	page := openStream(a, "/console/stream?tag=*", "Cookie", cookie)
	job2 := openStream(a, "/console/stream?jid="+jobStarted, "Cookie", cookie)
	mine := openStream(a, "/events", "X-Auth-Token", tokens["otto"])
	web.Ask("_return", "jid", jobStarted, "fun", "cmd.run", "fun_args", []any{}, "return", "output-later",
		"retcode", 0, "success", true)

	if text := job2.until("/ret/web1"); strings.Contains(text, "output-later") {
		t.Errorf("the page of a job that vera may look up is told more than that it went on: %s", text)
	}

	mine.until("output-later")
	runner("vera", "end-of-page")
	if text := page.until("end-of-page"); strings.Contains(text, "output-later") {
		t.Errorf("vera's page of events shows the job of another: %s", text)
	}
}

func hooksWantARight(t *testing.T, a *mastertest.API) {
	a.T = t
	for user, want := range map[string]int{"alice": 200, "hugo": 200, "otto": 403, "vera": 403, "eva": 403} {
		if code, body, _ := a.Do("POST", "/hook/a/b", `{"x": 1}`, "X-Auth-Token", a.Token(user)); code != want {
			t.Errorf("%s fires a hook: %d %s", user, code, body)
		}
	}
}

// siblingsPage is a page at another name of the same site, to which browsers lend the cookie.
func siblingsPage(t *testing.T, a *mastertest.API) {
	a.T = t
	token := a.Token("alice")
	command := `[{"client": "runner", "fun": "test.arg", "arg": ["by-a-sibling"]}]`
	for _, origin := range []string{"http://wiki.example.com", a.URL + "1", "null"} {
		code, body, h := a.Do("POST", "/", command, "Content-Type", "text/plain", "Cookie",
			"session_id="+token, "Origin", origin)
		if code != 403 || strings.Contains(body, "by-a-sibling") || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("a page of %s: %d %s %s", origin, code, body, h.Get("Access-Control-Allow-Origin"))
		}
	}

	if code, body, h := a.Do("POST", "/", command, "Content-Type", "text/plain", "Cookie",
		"session_id="+token, "Origin", a.URL); code != 200 || h.Get("Access-Control-Allow-Origin") != a.URL {
		t.Errorf("a page of salt-api's own host: %d %s", code, body)
	}
}
