package users

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/audit"
	"saltern/master/client"
	"saltern/master/event"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/support"
	"saltern/test/await"
	"saltern/test/check"
)

const secretsOptions = `external_auth:
  file:
    ^filename: %DIR%/users
    ^hashtype: plaintext
    admin: ['.*', '@runner', '@wheel']
  sharedsecret:
    root: ['.*']
netapi_enable_clients: [local, local_async, local_batch, runner, runner_async, wheel, wheel_async]
peer_run:
  .*: [test.arg, error.error]
extension_modules: %DIR%/ext
reactor:
  - my/react: [%DIR%/react.sls]
rest_cherrypy:
  disable_ssl: true
  host: 127.0.0.1
  port: 1
  console: true
  log_access_file: %DIR%/log/access.log
`

const discreetWheel = `
import logging
def fail(password):
    logging.getLogger(__name__).error("log in\nwith %s", password)
    __jid_event__.fire_event({"asked": [{"as": password}, b"x" + password.encode()], "message": "with " + password}, "progress")
    raise ValueError("cannot log in with " + password)
def end(password):
    raise BaseException("cannot log in with " + password)
`

// marks are texts that stand nowhere but where a test puts them.
type marks struct {
	mu  sync.Mutex
	all map[string]string // mark → the way on which it went in
}

func (m *marks) next(way string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	mark := fmt.Sprintf("Mark%02dqX7zSecret", len(m.all)+1)
	m.all[mark] = way
	return mark
}

// TestNoSecretWhereItDoesNotBelong: passwords, tokens and keys go in by every way, and none
// is in an event, below cachedir, in a job, a log, the audit record or a support bundle. (The
// second audit's finding 4 and its kind.) Exceptions are arguments of jobs for minions, which
// those must get and which minions repeat, and bodies of hooks and data of event.send, which
// are the events: see docs/api.md.
func TestNoSecretWhereItDoesNotBelong(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "saltern")
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &marks{all: map[string]string{}}
	password, shared := m.next("the file of users"), m.next("an option")
	write := func(text string, path ...string) {
		t.Helper()
		full := filepath.Join(append([]string{dir}, path...)...)
		check.Must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		check.Must(t, os.WriteFile(full, []byte(text), 0o644))
	}

	write("admin:"+password+"\n", "users")
	write(discreetWheel, "ext", "wheel", "discreet.py")
	write("", "log", "master")
	write("say:\n  test.configurable_test_state:\n    - changes: False\n    - result: True\n    - comment: {{ pillar['db']['password'] }}\n    - fire_event: True\n",
		"roots", "orch.sls")
	write("x:\n  runner.test.arg:\n    - kwarg:\n        password: "+m.next("a reaction")+"\n", "react.sls")
	options := secretsOptions + "sharedsecret: " + shared + "\n"
	python := os.Getenv("SALTERN_PYTHON")
	if python != "" {
		options += "saltern_renderer_python: " + python + "\n"
	}

	a := mastertest.ServeAPI(t, mastertest.StartIn(t, dir, options))
	a.ListenToBus()

	login := func(user, password string) string {
		return fmt.Sprintf(`"username": %q, "password": %q, "eauth": "file"`, user, password)
	}
	_, body, h := a.Do("POST", "/login", "{"+login("admin", password)+"}")
	token := h.Get("X-Auth-Token")
	if token == "" {
		t.Fatal(body)
	}

	m.all[token] = "the token of /login"
	_, body, _ = a.Do("POST", "/token", "["+"{"+login("admin", password)+"}]")
	_, rest, ok := strings.Cut(body, `"token": "`)
	if !ok || !strings.HasPrefix(body, `[{"start": `) || strings.Contains(body, "saltern_") {
		t.Fatalf("/token: %s", body)
	}

	m.all[rest[:64]] = "the token of /token"

	var ways sync.WaitGroup
	post := func(path, way, format string) {
		ways.Go(func() {
			mark := m.next(way)
			code, body, _ := a.Do("POST", path, strings.ReplaceAll(format, "MARK", mark), "X-Auth-Token", token)
			if path == "/" && (code == 401 || code >= 429) {
				t.Errorf("%s did not get in: %d %s", way, code, body)
			}
		})
	}

	post("/login", "a wrong password", "{"+login("admin", "MARK")+"}")
	post("/token", "a wrong password at /token", "[{"+login("admin", "MARK")+"}]")
	for _, client := range []string{"runner", "wheel", "local", "local_batch"} {
		post("/run", client+" with a wrong password",
			`[{"client": "`+client+`", "tgt": "*", "fun": "test.arg", `+login("admin", "MARK")+`}]`)
		a.Do("POST", "/run",
			`[{"client": "`+client+`", "tgt": "*", "fun": "`+
				map[bool]string{
					true:  "key.list_all",
					false: "test.arg",
				}[client == "wheel"]+`", `+login("admin", password)+`}]`)
	}

	for way, low := range map[string]string{
		"kwarg":                `"fun": "test.arg", "kwarg": {"password": "MARK"}`,
		"at the top":           `"fun": "test.arg", "api_token": "MARK"`,
		"key":                  `"fun": "test.arg", "kwarg": {"key": "MARK"}`,
		"assignment":           `"fun": "test.arg", "arg": ["password=MARK"]`,
		"assignment in a text": `"fun": "test.raw_arg", "arg": ["mysql --password=MARK -e x"]`,
		"nested":               `"fun": "test.arg", "kwarg": {"pillar": {"db": [{"user": "x", "secret": "MARK"}]}}`,
		"map in a list":        `"fun": "test.arg", "arg": [{"credentials": {"a": ["MARK"]}}]`,
		"JSON":                 `"fun": "test.arg", "arg": ["{\"passphrase\": \"MARK\"}"]`,
		"private key":          `"fun": "test.arg", "arg": ["-----BEGIN RSA PRIVATE KEY-----\nMARK\n-----END RSA PRIVATE KEY-----"]`,
		"unknown function":     `"fun": "test.nosuch", "kwarg": {"password": "MARK"}`,
		"wrong argument":       `"fun": "jobs.list_job", "kwarg": {"password": "MARK"}`,
		"error":                `"fun": "error.error", "kwarg": {"name": "Exception", "message": "password=MARK"}`,
		"auth.mk_token":        `"fun": "auth.mk_token", "kwarg": {"username": "admin", "eauth": "file", "password": "MARK"}`,
		"auth.del_token":       `"fun": "auth.del_token", "arg": ["MARK"]`,
		"option":               `"fun": "test.arg", "kwarg": {"master": {"auth.ldap.bindpw": "MARK"}}`,
	} {
		post("/", "runner: "+way, `[{"client": "runner", `+low+`}]`)
	}

	post("/", "runner_async", `[{"client": "runner_async", "fun": "test.arg", "kwarg": {"password": "MARK"}}]`)
	for way, low := range map[string]string{
		"kwarg":     `"fun": "config.values", "kwarg": {"password": "MARK"}`,
		"unknown":   `"fun": "nosuch.fun", "password_of_it": "MARK"`,
		"its name":  `"fun": "key.finger", "match": "password=MARK"`,
		"apply":     `"fun": "config.apply", "kwarg": {"key": "sharedsecret", "value": "x", "token_of_it": "MARK"}`,
		"arguments": `"fun": "minions.connected", "arg": ["token=MARK"]`,
	} {
		post("/", "wheel: "+way, `[{"client": "wheel", `+low+`}]`)
	}

	post("/", "referer", `[]`)
	ways.Go(func() {
		a.Do("GET", "/", "", "Referer", "https://x/?token="+m.next("a Referer"), "User-Agent",
			"x --token "+m.next("a User-Agent"), "Cookie", "session_id="+m.next("a cookie"))
	})

	ways.Go(func() {
		b := a.OpenBrowser()
		b.Send("POST", "/login",
			url.Values{
				"form":     {b.FormToken("/login")},
				"username": {"admin"},
				"password": {m.next("the console")},
				"eauth":    {"file"},
			})
	})

	ways.Go(func() { // the headers of a hook are in its event
		a.Do("POST", "/hook/x", `{}`, "X-Auth-Token", token, "Cookie", "session_id="+token)
	})

	// Straight at 4506, in each shape of a load.
	root := []any{"key", a.Key, "user", local.CurrentUser()}
	clear := func(cmd, way string, fields ...any) {
		ways.Go(func() {
			mark := m.next("4506: " + way)
			all := value.NewMap(slices.Concat(fields, []any{"jid", ""})...)
			var put func(v any) any
			put = func(v any) any {
				switch v := v.(type) {
				case string:
					return strings.ReplaceAll(v, "MARK", mark)
				case []any:
					out := make([]any, len(v))
					for i, e := range v {
						out[i] = put(e)
					}
					return out
				case *value.Map:
					out := value.NewMap()
					for k, e := range v.All() {
						out.Set(k, put(e))
					}
					return out
				}

				return v
			}

			load := put(all).(*value.Map)
			load.Set("cmd", cmd)
			a.AskValue(value.NewMap("enc", "clear", "load", load, "version", 3))
		})
	}

	creds := []any{"eauth", "file", "username", "admin", "password", "MARK"}
	job := []any{"tgt", "*", "fun", "test.ping", "arg", []any{}, "tgt_type", "glob", "ret", ""}
	clear("publish", "password in kwargs", append(job, "kwargs", value.NewMap(creds...))...)
	clear("publish", "password at the top", append(slices.Clone(job), creds...)...)
	clear("publish", "token in kwargs", append(job, "kwargs", value.NewMap("token", "MARK"))...)
	clear("publish", "root's key and a token",
		slices.Concat(job, root, []any{"kwargs", value.NewMap("token", "MARK")})...)
	clear("mk_token", "mk_token", creds...)
	clear("get_token", "get_token", "token", "MARK")
	clear("runner", "runner, password", append(creds, "fun", "test.arg", "kwarg", value.NewMap())...)
	clear("runner", "runner, arg and kwarg",
		append(root, "fun", "test.arg", "arg", []any{}, "kwarg",
			value.NewMap("arg", []any{"token=MARK"}, "kwarg", value.NewMap()))...)
	clear("runner", "runner, kwarg in kwarg",
		append(root, "fun", "test.arg", "kwarg",
			value.NewMap("arg", []any{}, "kwarg", value.NewMap("password", "MARK")))...)
	clear("runner", "runner, __kwarg__",
		append(root, "fun", "test.arg", "kwarg", value.NewMap(), "arg",
			[]any{value.NewMap("__kwarg__", true, "secret", "MARK")})...)
	clear("wheel", "wheel, __kwarg__",
		append(root, "fun", "key.list_all", "arg", []any{value.NewMap("__kwarg__", true, "secret", "MARK")})...)
	clear("wheel", "wheel, password", append(creds, "fun", "key.list_all")...)

	// A minion, Python's own tools, and the reactor.
	minion := a.AcceptedMinion("web1", "min8")
	minion.Ask("minion_runner", "fun", "test.arg", "arg",
		[]any{value.NewMap("__kwarg__", true, "password", m.next("peer_run"))})
	minion.Ask("minion_runner", "fun", "error.error", "arg",
		[]any{"Exception", "password=" + m.next("peer_run that fails")})
	tool := event.NewSender(a.Path("run"))
	for _, what := range []string{"new", "ret"} {
		mark := m.next("the event " + what + " of Python's salt-run")
		check.Must(t,
			tool.Fire(t.Context(), "salt/run/20260101000000000000/"+what,
				value.NewMap("fun", "runner.auth.mk_token", "fun_args",
					[]any{value.NewMap("username", "x", "password", mark)}, "return", "with "+mark)))
	}

	tool.Close()
	a.Parts.Fire("my/react", value.NewMap())
	if python != "" {
		post("/", "an orchestration",
			`[{"client": "runner", "fun": "state.orchestrate", "arg": ["orch"], "kwarg": {"pillar": {"db": {"password": "MARK"}}}}]`)
		post("/", "wheel in Python", `[{"client": "wheel", "fun": "discreet.fail", "kwarg": {"password": "MARK"}}]`)
		post("/", "wheel in Python that ends",
			`[{"client": "wheel", "fun": "discreet.end", "kwarg": {"password": "MARK"}}]`)
	}

	_, gen, _ := a.Do("POST", "/", `[{"client": "wheel", "fun": "key.gen"}]`, "X-Auth-Token", token)
	if _, pem, ok := strings.Cut(gen, `PRIVATE KEY-----\n`); ok {
		m.all[pem[:40]] = "key.gen"
	}

	ask := append(root, "fun", "auth.mk_token", "kwarg",
		value.NewMap("username", "admin", "eauth", "file", "password", password))

	// for whom there is no event with it
	if m, _ := a.AskInClear("runner", ask...).(*value.Map); m.Map("error").Str("name") != "SaltInvocationError" {
		t.Errorf("auth.mk_token for a client of Salt's: %s", value.Repr(m))
	}

	minted := a.AskInClear("runner", append(ask, client.AnswerField, true)...)
	got, _ := minted.(*value.Map)
	if fresh := got.Map("data").Map("return").Str("token"); fresh != "" {
		m.all[fresh] = "the token of auth.mk_token"
	} else {
		t.Errorf("auth.mk_token: %s", value.Repr(minted))
	}

	ways.Wait()
	var events []event.Event
	if python != "" { // which renders it
		await.That(t, "the reaction", func() bool {
			fresh := a.NewEvents()
			events = append(events, fresh...)
			return slices.ContainsFunc(fresh, func(e event.Event) bool {
				return strings.HasSuffix(e.Tag, "/ret") && e.Data.Str("user") == "Reactor"
			})
		})
	}

	await.That(t, "runners that ended", func() bool { return len(a.Parts.Runs.Running()) == 0 })
	if len(m.all) < 40 {
		t.Errorf("only %d secrets went in", len(m.all))
	}

	events = append(events, a.NewEvents()...)
	if python != "" && !slices.ContainsFunc(events,
		func(e event.Event) bool { return strings.HasSuffix(e.Tag, "/progress") }) {
		t.Error("no event of a function in Python was looked at")
	}

	lookFor(t, a, m, events)
}

// lookFor looks for marks in all that others may read.
func lookFor(t *testing.T, a *mastertest.API, m *marks, events []event.Event) {
	if len(events) < 50 {
		t.Errorf("only %d events", len(events))
	}

	places := map[string][]byte{"the master's and salt-api's log": []byte(a.Log.String())}
	for i, e := range events {
		places[fmt.Sprintf("the event %d %s", i, e.Tag)] = []byte(mastertest.PlainText(e.Data))
	}

	a.Stop() // all is written
	for _, dir := range []string{a.Path("cache"), a.Path("run"), a.Path("log")} {
		check.Must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case path == a.Path("cache", "tokens"): // a file's name is the token there
				return fs.SkipDir
			case e.Type().IsRegular():
				places[path], err = os.ReadFile(path)
			}

			return err
		}))
	}

	if n := len(places); n < 80 {
		t.Errorf("only %d places were looked at", n)
	}

	if records, err := audit.Read(t.Context(), "n1", audit.Query{}, audit.MasterDir(a.Path("cache"))); err != nil || len(records.Records) < 20 {
		t.Errorf("%d audit records, %v", len(records.Records), err)
	}

	places["a support bundle"] = bundle(t, a)
	for mark, way := range m.all {
		for place, text := range places {
			if i := bytes.Index(text, []byte(mark)); i >= 0 {
				t.Errorf("%s is in %s: …%.200q", way, place, text[max(0, i-100):])
			}
		}
	}
}

// bundle is a support bundle with the logs of the test, unpacked.
func bundle(t *testing.T, a *mastertest.API) []byte {
	t.Helper()
	s := settings.Default("n1")
	s.DataDir, s.RuntimeDir, s.Storage.Path = a.Path("node"), a.Path("run"), a.Path("storage")
	check.Must(t, os.MkdirAll(s.LogDir(), 0o755))
	check.Must(t, os.WriteFile(filepath.Join(s.LogDir(), "salt-master.log"), []byte(a.Log.String()), 0o600))
	var b bytes.Buffer
	check.Must(t, support.Write(t.Context(), &b, support.Source{
		Settings: &s, ConfigPath: a.Path("nosuch.yaml"), Version: "test", Now: time.Now(), Commands: map[string][]string{},
		Status: func(context.Context) (status.Document, error) { return status.Document{}, nil },
	}))

	zip, err := gzip.NewReader(&b)
	check.Must(t, err)
	text, err := io.ReadAll(zip)
	check.Must(t, err)

	return text
}
