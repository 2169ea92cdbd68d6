package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	wheelfunctions "saltern/master/internal/wheel"
	"saltern/master/runner"
	"saltern/master/value"
)

// asked is a master that keeps what it was asked to do.
type asking struct {
	recorded
	lows []*value.Map
}

func (a *asking) Do(ctx context.Context, token string, low *value.Map) (any, error) {
	a.lows = append(a.lows, low)
	return a.recorded.Do(ctx, token, low)
}

// started returns the command that started something, or nil.
func (a *asking) started() *value.Map {
	for _, low := range a.lows {
		switch client := low.Str("client"); {
		case strings.HasSuffix(client, "_async"), client == "wheel" && low.Str("fun") != "key.list_all":
			return low
		}
	}
	return nil
}

func newAsking() *asking {
	a := &asking{recorded: recorded{answers: theAnswers()}}
	began := value.NewMap("jid", "20261124155900000001", "minions", []any{"web1"})
	for _, fun := range []string{"state.apply", "cmd.run", "test.ping", "test.arg", "state.orchestrate", "manage.status"} {
		a.answers[fun] = began
	}
	a.answers["key.accept"] = value.NewMap("data", value.NewMap("jid", "20261124155900000002"), "tag", "salt/wheel/x")
	return a
}

// runForm returns a form of the page Run; pairs are names and values.
func runForm(pairs ...string) url.Values {
	form := url.Values{"form": {formToken(strings.Repeat("ab", 32))}}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return form
}

// TestStart: each kind starts what its form says, and leads to its page.
func TestStart(t *testing.T) {
	c := newConsole(t, "")
	for name, tt := range map[string]struct {
		form url.Values
		low  *value.Map
		page string
	}{
		"states on minions": {runForm("tgt", "web*", "fun", "state.apply", "sls", "web", "arg", "pillar={a: 1}", "test", "1"),
			value.NewMap("client", "local_async", "fun", "state.apply", "tgt", "web*", "tgt_type", "glob", "arg",
				[]any{"web", value.NewMap("__kwarg__", true, "pillar", value.NewMap("a", int64(1)), "test", true)}),
			"/job"},
		"an orchestration": {runForm("kind", "orchestration", "sls", "orch.deploy", "pillar", "version: 7\nname: x", "test", "1"),
			value.NewMap("client", "runner_async", "fun", "state.orchestrate", "kwarg",
				value.NewMap("mods", "orch.deploy", "pillar", value.NewMap("version", int64(7), "name", "x"), "test", true)),
			"/task"},
		"a runner": {runForm("kind", "runner", "fun", "test.arg", "arg", "1\n'1'\na=b"),
			value.NewMap("client", "runner_async", "fun", "test.arg", "arg", []any{"1", "'1'", "a=b"}), "/task"},
		"a wheel function": {runForm("kind", "wheel", "fun", "key.accept", "arg", "web1\ninclude_denied=true"),
			value.NewMap("client", "wheel", "fun", "key.accept", "arg", []any{"web1"}, "kwarg",
				value.NewMap("include_denied", true)), "/task"},
	} {
		m := newAsking()
		a := ask(t, c, m, http.MethodPost, "/run", tt.form)
		if got := m.started(); a.Code != http.StatusSeeOther || !value.Equal(got, tt.low) ||
			!strings.HasPrefix(a.Header.Get("Location"), "/console"+tt.page+"?jid=") {
			t.Errorf("%s: %d to %q, asked %s\n%s", name, a.Code, a.Header.Get("Location"), value.Repr(got), a.Body)
		}
	}
}

// TestRefusedForms: forms that would do something else than they say start nothing.
func TestRefusedForms(t *testing.T) {
	c := newConsole(t, "")
	for name, form := range map[string]url.Values{
		"no target":           runForm("fun", "test.ping"),
		"no function":         runForm("tgt", "*"),
		"two functions":       runForm("tgt", "*", "fun", "test.ping,cmd.run"),
		"test that is not":    runForm("tgt", "web1", "fun", "cmd.run", "arg", "reboot", "test", "1"),
		"test of a runner":    runForm("kind", "runner", "fun", "manage.status", "test", "1"),
		"states for cmd.run":  runForm("tgt", "web1", "fun", "cmd.run", "sls", "web"),
		"no orchestration":    runForm("kind", "orchestration"),
		"pillar is a list":    runForm("kind", "orchestration", "sls", "a", "pillar", "[1, 2]"),
		"an unknown kind":     runForm("kind", "ssh", "fun", "test.ping", "tgt", "*"),
		"too many arguments":  runForm("kind", "runner", "fun", "test.arg", "arg", strings.Repeat("x\n", maxArgs+1)),
		"of another session":  {"form": {"x"}, "tgt": {"*"}, "fun": {"test.ping"}},
		"wheel without a dot": runForm("kind", "wheel", "fun", "key"),
	} {
		m := newAsking()
		a := ask(t, c, m, http.MethodPost, "/run", form)
		if a.Code < 400 || a.Code >= 500 || m.started() != nil {
			t.Errorf("%s: %d, asked %s", name, a.Code, value.Repr(m.started()))
		}
	}
}

// TestTargetsReachBelowSyndics: with lower masters nobody knows how many minions a wildcard selects. The pages say so, and
// a job that may change something is confirmed first. Names of minions are counted as always.
func TestTargetsReachBelowSyndics(t *testing.T) {
	const says = "below syndics"
	for _, lower := range []bool{false, true} {
		c := newConsole(t, "")
		c.cfg.LowerMasters = lower
		for target, wild := range map[string]bool{"*": true, "web*": true, "web1": false} {
			m := newAsking()
			m.answers["presence.minions"] = theMinions("web1", "web2")
			below := lower && wild
			if a := ask(t, c, m, http.MethodGet, "/run?kind=minions", nil); strings.Contains(a.Body, says) != lower {
				t.Errorf("lower masters %t: the form promises\n%s", lower, a.Body)
			}
			if a := ask(t, c, m, http.MethodGet, "/run?kind=minions&look=1&tgt="+url.QueryEscape(target), nil); strings.Contains(a.Body, "Minions below syndics that the target selects") != below {
				t.Errorf("lower masters %t, %s: %d\n%s", lower, target, a.Code, a.Body)
			}

			a := ask(t, c, m, http.MethodPost, "/run", runForm("tgt", target, "fun", "cmd.run", "arg", "id"))
			if asks := m.started() == nil; asks != below || asks != strings.Contains(a.Body, says) {
				t.Errorf("lower masters %t, %s: %d, asks %t\n%s", lower, target, a.Code, asks, a.Body)
			}
			if !below {
				continue
			}
			form := confirmed(a.Body)
			form.Set("arg", "id")
			form.Set("sure", "1")
			if a = ask(t, c, m, http.MethodPost, "/run", form); a.Code != http.StatusSeeOther || m.started() == nil {
				t.Errorf("%s, confirmed: %d", target, a.Code)
			}
		}
	}
}

// TestManyMinions: a job that may change something on many minions is confirmed first, with what it
// does and on whom; one that changes nothing is not.
func TestManyMinions(t *testing.T) {
	c := newConsole(t, "")
	var ids []string
	for i := range manyMinions + 1 {
		ids = append(ids, fmt.Sprintf("web%02d", i))
	}

	for name, tt := range map[string]struct {
		form url.Values
		asks bool
	}{
		"all":                   {runForm("tgt", "*", "fun", "cmd.run", "arg", "echo "+hostile), true},
		"some":                  {runForm("tgt", "web0*", "fun", "cmd.run", "arg", "id"), false},
		"a list of all":         {runForm("tgt", strings.Join(ids, ","), "type", "list", "fun", "cmd.run", "arg", "id"), true},
		"test.ping":             {runForm("tgt", "*", "fun", "test.ping"), false},
		"test=True":             {runForm("tgt", "*", "fun", "state.apply", "test", "1"), false},
		"confirmed":             {runForm("tgt", "*", "fun", "cmd.run", "arg", "id", "sure", "1", "n", "21"), false},
		"confirmed for less":    {runForm("tgt", "*", "fun", "cmd.run", "arg", "id", "sure", "1", "n", "20"), true},
		"confirmed for more":    {runForm("tgt", "*", "fun", "cmd.run", "arg", "id", "sure", "1", "n", "22"), false},
		"confirmed for unknown": {runForm("tgt", "*", "fun", "cmd.run", "arg", "id", "sure", "1"), true},
	} {
		m := newAsking()
		m.answers["presence.minions"] = theMinions(ids...)
		a := ask(t, c, m, http.MethodPost, "/run", tt.form)
		if asks := m.started() == nil; asks != tt.asks || asks && !strings.Contains(a.Body, "21 minions") {
			t.Errorf("%s: %d, asks %v\n%s", name, a.Code, asks, a.Body)
		}
		if !tt.asks {
			continue
		}

		form := confirmed(a.Body)
		form.Set("arg", tt.form.Get("arg")) // a hidden text area
		form.Set("sure", "1")
		if a = ask(t, c, m, http.MethodPost, "/run", form); a.Code != http.StatusSeeOther || m.started() == nil {
			t.Errorf("%s, confirmed: %d", name, a.Code)
		}
	}

	// A target that has grown since the confirmation was shown is confirmed once more.
	growing := newAsking()
	growing.answers["presence.minions"] = theMinions(ids...)
	form := confirmed(ask(t, c, growing, http.MethodPost, "/run", runForm("tgt", "*", "fun", "cmd.run")).Body)
	form.Set("sure", "1")
	growing.answers["presence.minions"] = theMinions(append(ids, "web21")...)
	a := ask(t, c, growing, http.MethodPost, "/run", form)
	if growing.started() != nil || !strings.Contains(a.Body, "grown from 21 to 22 minions") {
		t.Errorf("grown: %d, asked %s\n%s", a.Code, value.Repr(growing.started()), a.Body)
	}
	form = confirmed(a.Body)
	form.Set("sure", "1")
	if a = ask(t, c, growing, http.MethodPost, "/run", form); a.Code != http.StatusSeeOther || growing.started() == nil {
		t.Errorf("grown, confirmed: %d", a.Code)
	}

	// Who may not see the minions is asked as well.
	m := newAsking()
	m.may = func(client, fun string) bool { return client == "local_async" }
	for _, form := range []url.Values{runForm("tgt", "web1", "fun", "cmd.run", "arg", "id"),
		runForm("tgt", "web1,web2", "type", "list", "fun", "cmd.run", "arg", "id")} {
		if a := ask(t, c, m, http.MethodPost, "/run", form); a.Code != http.StatusSeeOther || slices.Contains(m.asked, "local_async test.ping") {
			t.Errorf("names: %d, asked %v", a.Code, m.asked)
		}
	}
	if a := ask(t, c, m, http.MethodPost, "/run", runForm("tgt", "*", "fun", "cmd.run", "arg", "id")); !strings.Contains(a.Body,
		"which ones cannot be shown to you") || slices.Contains(m.asked, "local_async test.ping") {
		t.Errorf("%d, asked %v: %s", a.Code, m.asked, a.Body)
	}
}

// TestKindsByRight: the page offers what the master would permit, and nothing else.
func TestKindsByRight(t *testing.T) {
	c := newConsole(t, "")
	for name, tt := range map[string]struct {
		may    func(client, fun string) bool
		kinds  string
		offers string
		lacks  string
	}{
		"admin": {nil, "minions orchestration runner wheel", "manage.status", "auth.mk_token"},
		"operator": {func(client, fun string) bool { return client == "local_async" || fun == "state.orchestrate" },
			"minions orchestration", "", "manage.status"},
		"viewer": {func(client, fun string) bool { return client == "runner_async" && fun == "manage.status" }, "runner", "manage.status",
			"manage.up"},
		"nobody": {func(string, string) bool { return false }, "", "", ""},
	} {
		m := newAsking()
		m.may = tt.may
		v := &visit{login: m.login()}
		var kinds []string
		d := runPage{}
		if err := d.chooseKind(v); (err != nil) != (tt.kinds == "") {
			t.Errorf("%s: %v", name, err)
		}
		for _, k := range d.Kinds {
			kinds = append(kinds, k.Name)
		}
		if got := strings.Join(kinds, " "); got != tt.kinds {
			t.Errorf("%s may run %q", name, got)
		}
		if tt.kinds == "" {
			continue
		}

		a := ask(t, c, m, http.MethodGet, "/run?kind=runner", nil)
		offers := func(fun string) bool { return strings.Contains(a.Body, `<option value="`+fun+`">`) }
		if tt.offers != "" && !offers(tt.offers) || tt.lacks != "" && offers(tt.lacks) {
			t.Errorf("%s: %d, offers %s: %v, %s: %v", name, a.Code, tt.offers, offers(tt.offers), tt.lacks, offers(tt.lacks))
		}
	}
}

// firstSubmit is the first button of a form that sends it, which the Enter key in a field means.
var firstSubmit = regexp.MustCompile(`<button type="submit"[^>]*>`)

// TestEnterStartsNothing: the Enter key in a field of a form starts nothing.
func TestEnterStartsNothing(t *testing.T) {
	c := newConsole(t, "")
	for _, path := range []string{"/run?kind=minions", "/run?kind=orchestration", "/run?kind=runner", "/run?kind=wheel", "/saved/run?name=deploy"} {
		t.Run(path, func(t *testing.T) {
			_, page, _ := strings.Cut(ask(t, c, newAsking(), http.MethodGet, path, nil).Body, "<main")
			button := firstSubmit.FindString(page)
			posts := strings.Contains(button, `formmethod="post"`) || strings.HasPrefix(path, "/saved")
			if button == "" || posts && !strings.Contains(button, " disabled") {
				t.Errorf("Enter means %q", button)
			}
		})
	}
}

// TestKeysByTheirPage: keys are accepted, rejected and deleted on the page Keys, which shows them first.
func TestKeysByTheirPage(t *testing.T) {
	a := ask(t, newConsole(t, ""), newAsking(), http.MethodGet, "/run?kind=wheel", nil)
	for _, fun := range []string{"key.accept", "key.reject", "key.delete"} {
		if strings.Contains(a.Body, `<option value="`+fun+`">`) {
			t.Errorf("the page Run offers %s", fun)
		}
	}
	if _, page, _ := strings.Cut(a.Body, "<main"); !strings.Contains(page, `href="/console/keys"`) {
		t.Errorf("the page Keys is not named: %s", page)
	}
}

// TestOffersExist: what the form offers exists at the master.
func TestOffersExist(t *testing.T) {
	for _, f := range wheelToRun() {
		if !wheelfunctions.Has(f.Name) && f.Name != "config.apply" {
			t.Errorf("there is no wheel function %s", f.Name)
		}
	}
	for _, f := range runnersToRun() {
		if runner.Private("runner." + f.Name) {
			t.Errorf("nobody sees what %s returns", f.Name)
		}
	}
}

// TestFunctionLists: the functions that a minion has named are offered to who asked, and to nobody
// else; there are bounds.
func TestFunctionLists(t *testing.T) {
	c := newConsole(t, "")
	m := newAsking()
	names := []any{"test.ping", "own.module", says + ".x", strings.Repeat("x", 200) + ".y", "nodot", int64(7)}
	for i := range 10_000 {
		names = append(names, fmt.Sprintf("m%d.f", i))
	}
	m.answers["sys.list_functions"] = value.NewMap("web1", names)
	a := ask(t, c, m, http.MethodGet, "/run?tgt=web1&list=1", nil)
	if a.Code != http.StatusOK || !strings.Contains(a.Body, `<option value="own.module">`) ||
		strings.Contains(a.Body, "xxxxx") || len(a.Body) > 400_000 {
		t.Fatalf("%d, %d bytes", a.Code, len(a.Body))
	}

	if a = ask(t, c, m, http.MethodGet, "/run", nil); !strings.Contains(a.Body, "own.module") {
		t.Error("the next page does not have them")
	}

	l := &functionLists{}
	for i := range 1000 {
		l.put(fmt.Sprint(i), functionList{minion: fmt.Sprint(i), at: now().Add(time.Duration(i) * time.Second)})
	}
	if _, old := l.get("1", now()); old || len(l.list) != maxLists {
		t.Errorf("%d lists are kept", len(l.list))
	}
	if _, ok := l.get("999", now().Add(time.Hour)); ok {
		t.Error("an old list is used")
	}
}

// TestStateFiles: names of state files are those by which functions call them.
func TestStateFiles(t *testing.T) {
	got := stateFiles("web", []string{"nginx", "_modules", "a.d"}, []string{"top.sls", "init.sls", "conf.sls", "x.y.sls", "file.txt"})
	if want := []string{"web.conf", "web.nginx"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for sls, want := range map[string]string{"": "", "web": "", "web.nginx.conf": "web/nginx", "a,b.c": "", "../x.y": ""} {
		if got := folderOf(sls); got != want {
			t.Errorf("%q: %q", sls, got)
		}
	}
}

// TestTask: the page of a run on the master shows its steps, its failure, and that it is at work.
func TestTask(t *testing.T) {
	c := newConsole(t, "")
	steps := theJob().(*value.Map).Map("Result").Map("web2").Map("return")
	run := func(fun string, result any, success bool) *value.Map {
		return value.NewMap("Result", value.NewMap("m1", value.NewMap("return",
			value.NewMap("fun", fun, "user", says, "fun_args", []any{"orch." + says}, "success", success, "return", result))))
	}

	for name, tt := range map[string]struct {
		job  *value.Map
		want []string
		code int
	}{
		"steps": {run("runner.state.orchestrate", value.NewMap("outputter", "highstate", "data", value.NewMap("m1", steps)), true),
			[]string{"Steps at m1", "1 failed", `<span class="badge failed">failed</span>`, "service.running"}, 200},
		"faulty files": {run("runner.state.orchestrate",
			value.NewMap("outputter", "highstate", "data", value.NewMap("m1", []any{"No such sls " + says})), true),
			[]string{"No such sls", `<span class="badge failed">failed</span>`}, 200},
		"a text":    {run("runner.test.arg", "hello "+says, true), []string{"hello", `<span class="badge ok">ok</span>`}, 200},
		"a failure": {run("wheel.key.accept", "Exception "+says, false), []string{`<span class="badge failed">failed</span>`}, 200},
		"at work":   {value.NewMap("Result", value.NewMap(), "Error", "no such job"), []string{"running", "/stream?run="}, 200},
	} {
		m := newAsking()
		m.answers["jobs.list_job"] = tt.job
		a := ask(t, c, m, http.MethodGet, "/task?jid=20261124155900000001", nil)
		for _, want := range tt.want {
			if a.Code != tt.code || !strings.Contains(a.Body, want) {
				t.Errorf("%s: %d, without %q\n%s", name, a.Code, want, a.Body)
			}
		}
		if strings.Contains(a.Body, "<b ") || strings.Contains(a.Body, "\u202e") {
			t.Errorf("%s: what is returned is not text", name)
		}
	}

	m := newAsking()
	m.answers["jobs.list_job"] = value.NewMap("Result", value.NewMap())
	if a := ask(t, c, m, http.MethodGet, "/task?jid=20251124155900000001", nil); !strings.Contains(a.Body, "keeps no result") ||
		strings.Contains(a.Body, "/stream") {
		t.Errorf("an old run: %s", a.Body)
	}

	delete(m.answers, "jobs.list_job")
	for path, code := range map[string]int{"/task?jid=20261124155900000001": 403, "/task?jid=x": 400, "/stream?run=x": 400} {
		if a := ask(t, c, m, http.MethodGet, path, nil); a.Code != code {
			t.Errorf("%s: %d", path, a.Code)
		}
	}
}
