package console

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/value"
)

var update = flag.Bool("update", false, "write the pages in testdata anew")

// recorded is a master whose answers are written down; those of a real one are in the
// tests of package master and in test/e2e.
type recorded struct {
	answers map[string]any // by function
	may     func(client, fun string) bool
	asked   []string
	lows    []*value.Map    // the commands of asked
	status  *control.Status // nil: that of a master with a full disk
}

func (r *recorded) login() Login {
	may := r.may
	if may == nil {
		may = func(string, string) bool { return true }
	}
	return Login{
		Token:     strings.Repeat("ab", 32),
		User:      "alice",
		System:    "pam",
		Expires:   now().Add(time.Hour),
		May:       may,
		Clients:   []string{"local", "local_async", "runner", "runner_async", "wheel"},
		AllEvents: true,
	}
}

func (r *recorded) LogIn(context.Context, string, string, string) (Login, error) {
	return r.login(), nil
}

func (r *recorded) Session(_ context.Context, token string) (Login, error) {
	if token != r.login().Token {
		return Login{}, &Refusal{http.StatusUnauthorized, ""}
	}
	return r.login(), nil
}

func (r *recorded) BeginSignIn(context.Context, string) (string, error) {
	return "https://sso.example.com/auth?state=1", nil
}

func (r *recorded) SignIn(_ context.Context, secret string, _ url.Values) (Login, error) {
	if secret == "" {
		return Login{}, &Refusal{http.StatusUnauthorized, "Try again."}
	}
	return r.login(), nil
}

func (r *recorded) LogOut(context.Context, string) error { return nil }

func (r *recorded) Do(_ context.Context, _ string, low *value.Map) (any, error) {
	r.asked = append(r.asked, low.Str("client")+" "+low.Str("fun"))
	r.lows = append(r.lows, low)
	a, ok := r.answers[low.Str("fun")]
	if err, isError := a.(error); isError {
		return nil, err
	}
	if !ok {
		return nil, &Refusal{http.StatusUnauthorized, "Authorization error occurred."}
	}
	return a, nil
}

func (r *recorded) Status() *control.Status {
	if r.status != nil {
		return r.status
	}
	return &control.Status{
		ID:      "m1",
		Started: now().Add(-time.Hour),
		Written: now(),
		Problems: []control.Problem{{
			What:  control.JobCacheFault,
			Text:  "no space left on device",
			Since: now().Add(-time.Minute),
		}},
	}
}

func now() time.Time { return time.Date(2026, 11, 24, 16, 0, 0, 0, time.UTC) }

func newConsole(t testing.TB, prefix string) *Console {
	t.Helper()
	c, err := New(Config{
		Prefix:  prefix,
		Secure:  true,
		Version: "1.2.3",
		Cluster: true,
		Nodes:   true,
		Systems: []string{"ldap", "pam"},
		Log:     slog.New(slog.DiscardHandler),
		Now:     now,
	})
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// ask asks for a page as who is logged in.
func ask(t testing.TB, c *Console, m Master, method, path string, form url.Values) Answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "https://salt:8000"+c.base+path, nil)
	r.AddCookie(&http.Cookie{Name: "__Secure-saltern_console", Value: strings.Repeat("ab", 32)})
	return c.Serve(t.Context(),
		Request{
			HTTP:   r,
			Path:   strings.TrimPrefix(r.URL.Path, c.base),
			Master: m,
			Form:   func() (url.Values, error) { return form, nil },
		})
}

// hostile is what a minion may be called; says is what it may say as well.
const (
	hostile = `<b onclick="x">'&lt;`
	says    = hostile + "\u202e\x1b[2J"
)

func wheel(v any) any { return value.NewMap("data", value.NewMap("return", v, "success", true)) }

func theMinions(ids ...string) any {
	l := []any{}
	for i, id := range ids {
		l = append(l,
			value.NewMap("id", id, "key", "accepted", "connected", i%2 == 0, "address", "192.0.2.7", "seen",
				1795535999.5))
	}
	return value.NewMap("minions",
		append(l,
			value.NewMap("id", "new1", "key", "pending", "connected", false, "address", "192.0.2.9", "seen",
				1795535000.0)),
		"subscriptions", value.NewMap())
}

// theJob is a highstate of four minions, of which one failed and one has not answered.
func theJob() any {
	st := func(n int, result any, changes *value.Map, more ...any) *value.Map {
		m := value.NewMap("__run_num__", n, "result", result, "changes", changes, "comment", "The comment.",
			"duration", 12.5, "start_time", "16:00:00.000000")
		for i := 0; i < len(more); i += 2 {
			m.Set(more[i], more[i+1])
		}
		return m
	}

	none := value.NewMap()
	good := value.NewMap("pkg_|-vim_|-vim_|-installed", st(0, true, none),
		"file_|-motd_|-/etc/motd_|-managed",
		st(1, true, value.NewMap("diff", "--- \n+++ \n@@ -1 +1 @@\n-old\n+new "+says+"\n", "mode", "0644")))
	bad := value.NewMap("pkg_|-vim_|-vim_|-installed", st(0, true, none), "cmd_|-a_|-echo a_|-b_|-run", st(1, nil, none, "warnings", []any{"beware " + says}),
		"service_|-nginx_|-"+hostile+"_|-running", st(2, false, none, "comment", "Job for nginx.service failed. "+says))

	return value.NewMap("jid", "20261124155900000001", "Function", "state.apply", "Arguments", []any{"web",
		value.NewMap("__kwarg__", true, "test", true)}, "Target", "*", "Target-type", "glob", "User", "alice",
		"Minions", []any{"web1", "web2", hostile, "web4"}, "Saved", value.NewMap("job", hostile, "schedule", says), "StartTime", "2026, Nov 24 15:59:00.000001", "Result", value.NewMap(
			"web1", value.NewMap("return", good, "retcode", 0, "success", true), "web2", value.NewMap("return", bad, "retcode", 2, "success", true),
			hostile, value.NewMap("return", []any{"Rendering SLS failed " + says}, "retcode", 1)))
}

func theAnswers() map[string]any {
	job := value.NewMap("JID", "20261124155900000001", "Function", "state.apply", "Arguments", []any{"web"},
		"Target", "*", "Target-type", "glob", "User", says, "StartTime", "2026, Nov 24 15:59:00.000001", "Saved", value.NewMap("job", hostile, "schedule", says))
	return map[string]any{
		"presence.minions": theMinions("web1", hostile),
		"key.list_all": wheel(value.NewMap("minions", []any{"web1", hostile}, "minions_pre",
			[]any{"new1"}, "minions_rejected", []any{}, "minions_denied", []any{}, "local",
			[]any{"m1.pem"})),
		"key.finger": wheel(value.NewMap("minions", value.NewMap("web1", "aa:bb", hostile, "cc:dd"),
			"minions_pre", value.NewMap("new1", "11:22:33"))),
		"key.accept_dict": wheel(value.NewMap("minions", []any{"new1"})),
		"cluster.members": value.NewMap("id", "192.0.2.1", "state", "member", "version", uint64(7), "peers",
			value.NewMap("192.0.2.2", value.NewMap("connected", true, "alive", true, "version", uint64(7)),
				"192.0.2.3",
				value.NewMap("connected", false, "alive", false, "error", "connection refused"))),
		"cache.grains": value.NewMap("web1", value.NewMap("os", "Debian", "osfinger", "Debian-12",
			"saltversion", "3008.3", "ipv4", []any{"127.0.0.1", "192.0.2.7"}),
			hostile, value.NewMap("os", says, "saltversion", says, says,
				value.NewMap(says, []any{says, int64(1), nil}), "homepage", "javascript:alert(1)")),
		"jobs.list_jobs_filter": []any{job},
		"jobs.list_job":         theJob(),
		"files.list": value.NewMap("envs", []any{"base", hostile}, "saltenv", "base", "prefix",
			"", "dirs", []any{"web", hostile}, "files", []any{"top.sls", says}, "of", int64(7)),
		"files.show": value.NewMap("path", "web/"+hostile, "saltenv", hostile, "backend", "roots",
			"size", int64(90_000), "text", "a: "+says+"\n{{ x }}\n", "cut", int64(80_000)),
		"git.status": value.NewMap("https://git.example/"+
			says, value.NewMap("state", "x", "refs", value.NewMap("main", "0123456789abcdef0123", says,
			says), "changed", "2026-11-22T16:00:00Z", "fetched", "2026-11-24T15:59:00Z", "more_refs", int64(3),
			"other_masters", value.NewMap("m2", value.NewMap("same", true), says, value.NewMap("same", false))),
			"ssh://git.example/y", value.NewMap("state", nil, "fault",
				value.NewMap("kind", "x", "text", says, "since", "2026-11-24T15:00:00Z"))),
		"pillar.show_pillar": value.NewMap("_errors", []any{says}, "role", "web", says,
			value.NewMap(says, []any{says})),
		"audit.all": value.NewMap("unasked", value.NewMap("n3", says), "more", false, "damaged", int64(0),
			"records", []any{
				value.NewMap("time", "2026-11-24T15:00:00.5Z", "node", "n2"+says, "user", "alice", "as",
					"root", "proof", "login", "from", "local", "action", "node.drain", "object", "n3",
					"result", "ok")}),
		"audit.records": value.NewMap("node", "n1"+says, "more", true, "damaged", int64(2), "records", []any{
			value.NewMap("time", "2026-11-24T15:00:00.5Z", "user", "alice", "as", "root", "proof", "login",
				"from", "local", "action", "key.accept", "object", hostile, "result", "asked", "op", "a"),
			value.NewMap("time", "2026-11-24T15:00:01Z", "user", "alice", "as", "root", "proof", "login",
				"from", "local", "action", "key.accept", "object", hostile, "result", "ok", "detail", says,
				"op", "a"),
			value.NewMap("time", "2026-11-24T15:59:00Z", "user", says, "proof", "token", "eauth", "pam",
				"from", "192.0.2.7", "via", "salt-api", "action", "job.publish", "function", "state.apply",
				"object", "*", "minions", int64(4), "result", "started", "jid", "20261124155900000001"),
			value.NewMap("time", says, "user", "eve", "proof", "none", "from", says, "action", "login",
				"function", "mk_token", "result", "refused", "lost", int64(3)),
		}),
		"token.list": wheel(value.NewMap("more", int64(2), "tokens", []any{
			value.NewMap("name", control.TokenName(strings.Repeat("ab", 32)), "user", "alice", "eauth",
				"pam", "from", "192.0.2.7", "node", "n1", "start", "2026-11-24T15:00:00Z", "until",
				"2026-11-25T03:00:00Z"),
			value.NewMap("name", "0123456789abcdef", "user", says, "eauth", says, "from", says, "node", says,
				"start", "2026-11-24T14:00:00Z", "until", "2026-11-25T02:00:00Z")})),
		"schedule.list": theSchedule(),
		"saved.jobs": value.NewMap("deploy", value.NewMap("description", "Brings a version to the shops. "+hostile, "target", "web",
			"function", "state.apply", "args", []any{"{app}"}, "kwargs", value.NewMap("pillar", value.NewMap("version", "{version}")),
			"fields", []any{
				value.NewMap("name", "app", "kind", "choice", "choices", []any{"shop", "blog"}),
				value.NewMap("name", "version", "kind", "text", "pattern", "[0-9.]+", "default", "7", "description", hostile),
				value.NewMap("name", "force", "kind", "bool", "default", false)},
			"test_first", true, "batch", "10%", "stop_above", int64(5), "may_run", value.NewMap("pam", []any{"alice", "ops%"}),
			"revision", int64(3), "changed", "2026-11-24T15:00:00.123Z", "by", "anna (pam)", "runs", true)),
		"saved.targets": value.NewMap("web", value.NewMap("expression", "web* and "+hostile, "type", "compound", "description", says,
			"revision", int64(4), "changed", "2026-11-24T15:00:00Z", "by", "anna (pam)")),
		"saved.schedules": value.NewMap("four", value.NewMap("saved", "deploy", "kwargs", value.NewMap("app", "shop"), "cron",
			"30 8-14/2 * * *", "splay", int64(60), "enabled", true, "revision", int64(5))),
		"token.revoke":     wheel(int64(1)),
		"fleet.trend":      theTrend(),
		"fleet.last":       theLastRuns(),
		"fleet.runs":       theRuns(),
		"fleet.explain":    theExplanation(),
		"fleet.jobs":       theHistoryJobs(),
		"appliance.status": theAppliance(),
		"appliance.course": theCourse(),
		"appliance.drain":  wheel(true), "appliance.restart": wheel(true), "appliance.undrain": value.NewMap("data", value.NewMap("success", false, "return", "Exception occurred in wheel appliance.undrain: "+says)),
		"sys.doc": value.NewMap("web1",
			value.NewMap("test.ping", "Used to make sure the minion is up.\n\nCLI Example: "+says)),
	}
}

// marks change with the style and the script.
var marks = regexp.MustCompile(`\?v=[0-9a-f]{12}`)

// TestPages holds the pages against those in testdata.
func TestPages(t *testing.T) {
	id := url.QueryEscape(hostile)
	for name, path := range map[string]string{
		"overview": "/?done=drain&node=n1", "node": "/nodes/confirm?do=restart&node=n2&service=lb", "keys": "/keys?state=minions", "keys-pending": "/keys", "confirm": "/keys/confirm?do=accept&state=minions_pre&id=new1", "minions": "/minions", "minions-target": "/minions?tgt=os:Debian&type=grain",
		"jobs-older": "/jobs?failed=1&who=" + id, "stop": "/job/stop?do=kill&jid=20261124155900000001",
		"fleet": "/fleet", "minion": "/minion?id=" + id, "minion-explained": "/minion?explain=1&id=" + id, "jobs": "/jobs", "job": "/job?jid=20261124155900000001", "run": "/run?tgt=" + id +
			"&type=list&fun=test.ping&arg=" + id, "run-doc": "/run?tgt=web*&fun=test.ping&doc=1",
		"events": "/events?tag=" + id, "files": "/files", "files-dir": "/files?env=" + id + "&dir=web/" +
			id, "file": "/file?env=base&path=x", "pillar": "/pillar?id=" +
			id, "audit": "/audit?kind=" + id + "&user=" +
			id, "audit-all": "/audit", "schedule": "/schedule", "schedule-entry": "/schedule/edit?name=four", "saved": "/saved", "saved-targets": "/saved?kind=target",
		"saved-job": "/saved/job?name=deploy", "saved-target": "/saved/target?tgt=" + id, "saved-run": "/saved/run?name=deploy", "saved-delete": "/saved/delete?kind=job&name=deploy",
		"run-orchestration": "/run?kind=orchestration&sls=" + id, "run-wheel": "/run?kind=wheel&fun=" + id, "task": "/task?jid=20261124155900000001", "tokens": "/tokens?done=1", "token": "/tokens/confirm?user=alice", "not-found": "/" + id,
	} {
		m := &recorded{answers: theAnswers()}
		c := newConsole(t, "/api")
		c.cfg.Nodes = name != "audit"
		a := ask(t, c, m, http.MethodGet, path, nil)
		if (a.Code != http.StatusOK) != (name == "not-found") {
			t.Errorf("%s: %d", path, a.Code)
		}

		if strings.Contains(a.Body, "<b ") || strings.Contains(a.Body, "\u202e") ||
			strings.Contains(a.Body, `href="javascript`) {
			t.Errorf("%s: what a minion says is not text", path)
		}

		a.Body = marks.ReplaceAllString(a.Body, "?v=MARK")
		file := filepath.Join("testdata", name+".html")
		if *update {
			if err := os.WriteFile(file, []byte(a.Body), 0o644); err != nil {
				t.Fatal(err)
			}
		}

		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		if string(want) != a.Body {
			t.Errorf("%s is not as in %s:\n%s", path, file, a.Body)
		}
	}
}

// TestFailedFirst: what failed stands before what has not answered and what is well,
// of minions and of states.
func TestFailedFirst(t *testing.T) {
	rows := results(theJob().(*value.Map))
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.ID+" "+r.Word)
	}

	if got := strings.Join(ids, ", "); got != hostile+" could not run states, web2 failed, web4 no answer yet, web1 changed" {
		t.Errorf("%s", got)
	}

	rows[1].fillFrom(newBudget(), theJob().(*value.Map).Map("Result").Map("web2"), maxStates)
	s := rows[1].States
	if s == nil || len(s.Rows) != 3 || s.Failed != 1 || s.Differ != 1 || s.Succeeded != 1 {
		t.Fatalf("%+v", s)
	}

	if a, b, c := s.Rows[0], s.Rows[1], s.Rows[2]; a.Function != "service.running" || !a.Open ||
		b.Name != "echo a_|-b" || b.Word != "would change" || c.Word != "ok" || c.Open {
		t.Errorf("%+v", s.Rows)
	}
}

// TestSizes: the first page and the lists stay small with 2,000 minions, the page of a
// job with whatever they return.
func TestSizes(t *testing.T) {
	const n = 2000
	c := newConsole(t, "")
	ids, list := []string{}, []any{}
	grains, fingers, result := value.NewMap(), value.NewMap(), value.NewMap()
	finger, version, address := strings.Repeat("é", 1<<16), strings.Repeat("x", 1<<16), strings.Repeat("1", 1<<16)
	for i := range n {
		id := fmt.Sprintf("web%04d.example.com", i)
		ids, list = append(ids, id), append(list, id)
		grains.Set(id, value.NewMap("osfinger", finger, "saltversion", version, "ipv4", []any{address}))
		fingers.Set(id, strings.Repeat("ab:", 32))
	}

	st, diff, comment := value.NewMap(), strings.Repeat("+line\n", 3000), strings.Repeat("c", 100_000)
	for k := range 1000 {
		st.Set(fmt.Sprintf("file_|-%d_|-%s_|-managed", k, strings.Repeat("n", 300)),
			value.NewMap("result", k > 2, "changes", value.NewMap("diff", diff), "comment", comment, "__run_num__", k))
	}

	for _, id := range ids[:200] {
		result.Set(id, value.NewMap("return", st))
	}

	jobs := []any{}
	for i := range maxJobs {
		jobs = append(jobs,
			value.NewMap("JID", fmt.Sprintf("20261124%012d", i), "Function", "state.apply", "Arguments",
				[]any{strings.Repeat("a", 1<<16)}, "Target", list, "Target-type", "list", "User",
				strings.Repeat("u", 1000)))
	}

	m := &recorded{answers: map[string]any{
		"presence.minions": theMinions(ids...), "key.list_all": wheel(value.NewMap("minions", list)), "key.finger": wheel(value.NewMap("minions", fingers)), "cache.grains": grains,
		"jobs.list_jobs_filter": jobs, "cluster.members": value.NewMap(),
		"jobs.list_job": value.NewMap("Function", "state.apply", "Target", list, "Target-type", "list",
			"Minions", list, "Result", result),
	}}

	for path, limit := range map[string]int{
		"/":                             200_000,
		"/keys":                         200_000,
		"/minions":                      210_000,
		"/minion?id=" + ids[0]:          200_000,
		"/jobs":                         200_000,
		"/run?look=1&tgt=*":             200_000,
		"/job?jid=20261124155900000001": 1_225_000,
	} {
		begin := time.Now()
		a := ask(t, c, m, http.MethodGet, path, nil)
		if a.Code != http.StatusOK || len(a.Body) > limit {
			t.Errorf("%s: %d, %d bytes", path, a.Code, len(a.Body))
		}
		t.Logf("%-40.40s %7d bytes, %s", path, len(a.Body), time.Since(begin).Round(time.Millisecond))
	}

	if a := ask(t, c, m, http.MethodGet, "/keys?page=9999", nil); !strings.Contains(a.Body,
		"1951 to 2000 of 2000") || !strings.Contains(a.Body, "page=39") {
		t.Errorf("the last page: %s", a.Body)
	}
}

// TestChangedKey: a key is accepted only if it is the one that was shown, and only by
// who confirmed it.
func TestChangedKey(t *testing.T) {
	c := newConsole(t, "")
	form := func(finger, id string) url.Values {
		return url.Values{
			"form":   {formToken(strings.Repeat("ab", 32))},
			"do":     {"accept"},
			"state":  {"minions_pre"},
			"id":     {id},
			"finger": {finger},
		}
	}

	for finger, want := range map[string]int{
		"11:22:33": http.StatusSeeOther,
		"11:22:34": http.StatusConflict,
		"":         http.StatusConflict,
	} {
		m := &recorded{answers: theAnswers()}
		a := ask(t, c, m, http.MethodPost, "/keys", form(finger, "new1"))
		if a.Code != want || slices.Contains(m.asked, "wheel key.accept_dict") != (want == http.StatusSeeOther) {
			t.Errorf("%q: %d, asked %v", finger, a.Code, m.asked)
		}
	}

	for _, id := range []string{"*", "../x", "", "new\n1"} {
		m := &recorded{answers: theAnswers()}
		if a := ask(t, c, m, http.MethodPost, "/keys", form("11:22:33", id)); a.Code != http.StatusBadRequest || len(m.asked) > 0 {
			t.Errorf("%q: %d, asked %v", id, a.Code, m.asked)
		}
	}
}

// TestRights: pages show nobody what he may not do, and a refusal of the master is one
// here.
func TestRights(t *testing.T) {
	c := newConsole(t, "")
	viewer := &recorded{answers: theAnswers(), may: func(client, fun string) bool {
		return client == "runner" || fun == "key.list_all"
	}}
	a := ask(t, c, viewer, http.MethodGet, "/keys", nil)
	for _, no := range []string{"checkbox", "Accept…", "/console/run?"} {
		if strings.Contains(a.Body, no) {
			t.Errorf("a viewer sees %s", no)
		}
	}

	if !strings.Contains(a.Body, "(viewer)") {
		t.Errorf("who is he? %s", a.Body)
	}

	nobody := &recorded{may: func(string, string) bool { return false }}
	for path, code := range map[string]int{
		"/":               http.StatusOK,
		"/keys":           http.StatusUnauthorized,
		"/minions":        http.StatusUnauthorized,
		"/jobs":           http.StatusUnauthorized,
		"/audit":          http.StatusUnauthorized,
		"/files":          http.StatusUnauthorized,
		"/file?path=x":    http.StatusUnauthorized,
		"/pillar?id=web1": http.StatusUnauthorized,
	} {
		if a := ask(t, c, nobody, http.MethodGet, path, nil); a.Code != code {
			t.Errorf("%s for somebody without rights: %d", path, a.Code)
		}
	}
}

// TestArguments: what a job had can be typed again, and comes to the same.
func TestArguments(t *testing.T) {
	for _, args := range [][]any{
		{}, {"a", int64(1), true, nil, 1.5}, {"1", "true", "a=b", " x ", "two\nlines", "null", ""},
		{[]any{"a", int64(1)}, value.NewMap("k", "v"),
			value.NewMap("__kwarg__", true, "test", true, "pillar", value.NewMap("a", []any{int64(1)}))},
	} {
		if text, ok := typedArgs(args); !ok {
			t.Errorf("%s: %q", value.Repr(args), text)
		}
	}
}

// TestPlace: connections without a name count for the minions that were heard last
// from their address, and for no more than there are.
func TestPlace(t *testing.T) {
	all := []minion{
		{ID: "a", Key: "accepted", Address: "1", heard: 1},
		{ID: "b", Key: "accepted", Address: "1", heard: 3},
		{ID: "c", Key: "accepted", Address: "1", heard: 2},
		{ID: "d", Key: "accepted", Address: "2", heard: 9},
		{ID: "e", Key: "pending", Address: "1", heard: 4},
		{ID: "f", Key: "accepted", Connected: true},
	}

	placeSubscriptions(all, value.NewMap("1", int64(2), "3", int64(9)))
	var there []string
	for _, m := range all {
		if m.Connected {
			there = append(there, m.ID)
		}
	}

	slices.Sort(there)
	if strings.Join(there, "") != "bcf" {
		t.Errorf("%v", there)
	}
}

// TestLinkElsewhere: a link on another site has nothing asked of minions.
func TestLinkElsewhere(t *testing.T) {
	c := newConsole(t, "")
	for site, want := range map[string]bool{
		"":            true,
		"same-origin": true,
		"none":        true,
		"same-site":   false,
		"cross-site":  false,
	} {
		m := &recorded{answers: theAnswers()}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			"https://salt:8000/console/run?tgt=*&doc=1&fun=test.ping", nil)
		r.AddCookie(&http.Cookie{Name: "__Secure-saltern_console", Value: strings.Repeat("ab", 32)})
		r.Header.Set("Sec-Fetch-Site", site)
		a := c.Serve(t.Context(), Request{HTTP: r, Path: "/run", Master: m})
		if a.Code != http.StatusOK || slices.Contains(m.asked, "local sys.doc") != want {
			t.Errorf("%q: %d, asked %v", site, a.Code, m.asked)
		}
	}
}

// FuzzArguments: whatever is typed as arguments, the form to run the job again is
// filled with the same, where they are plain values. For others there may be no form.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{"", "a\n1\ntest=true", "a=[1, {b: null}]", "'x\n\"y\"", "2026-11-24",
		"0x10\n1e3\n.inf\n010", "a: b", "20261124165928179831", "k='two\nlines'", "#x", "k=#x", "- a", "~",
		"|", "[{0,1}]"} {
		f.Add(s)
	}

	usual := regexp.MustCompile(`^[\w.=/:'"~|\n-]*$`)
	plainValue := func(v any) bool {
		switch v.(type) {
		case nil, bool, string, int64:
			return true
		}
		return false
	}

	f.Fuzz(func(t *testing.T, text string) {
		args := parsedArgs(textLines(text))
		all := args
		if n := len(args); n > 0 {
			if m, ok := args[n-1].(*value.Map); ok && m.Value("__kwarg__") == true {
				all = slices.Clone(args[:n-1])
				for _, v := range m.All() {
					all = append(all, v)
				}
			}
		}

		again, ok := typedArgs(args)
		if !ok && usual.MatchString(text) && !slices.ContainsFunc(all, func(v any) bool { return !plainValue(v) }) {
			t.Errorf("%q: %s, again %q: %s", text, value.Repr(args), again, value.Repr(parsedArgs(textLines(again))))
		}
	})
}

// FuzzState: no tag and no result of a state breaks the page.
func FuzzState(f *testing.F) {
	f.Add("file_|-a_|-/etc/a_|-managed", "+x\n-y", "done")
	f.Add("_|-_|-_|-", "", "")
	f.Add("a_|-b_|-c_|-d_|-e_|-f", "\xff", "\u202e")
	f.Fuzz(func(t *testing.T, tag, diff, comment string) {
		m := value.NewMap(tag, value.NewMap("result", false, "changes", value.NewMap("diff", diff), "comment", comment))
		if !isHighstate(m) {
			return
		}
		s := statesOf(m, newBudget(), maxStates)
		if len(s.Rows) != 1 || s.Failed != 1 || len(s.Rows[0].Comment.Text) > 8*maxText {
			t.Errorf("%q: %+v", tag, s)
		}
	})
}

// TestLogInOfNobody: where external_auth lets nobody in, the page says how to change that.
func TestLogInOfNobody(t *testing.T) {
	c, err := New(Config{Secure: true, Log: slog.New(slog.DiscardHandler), Now: now})
	if err != nil {
		t.Fatal(err)
	}

	r := httptest.NewRequestWithContext(t.Context(), "GET", "https://salt:8000/console/login", nil)
	text := c.Serve(t.Context(), Request{HTTP: r, Path: "/login", Master: &recorded{}}).Body
	for _, want := range []string{"Nobody can log in yet", "external_auth:\n  pam:\n    admin: [",
		"applianced config apply", "reload this page", "sudo passwd admin"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
}
