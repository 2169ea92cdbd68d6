package console

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/saved"
	"saltern/master/runner"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// upcoming is a schedule without runs.
type upcoming struct{}

func (upcoming) NextRuns(int) (map[string][]time.Time, error) { return nil, nil }

// savedMaster is a master with real saved objects.
type savedMaster struct {
	asking
	table     *runner.Table
	withholds bool  // as for a user without a permission for saved.jobs
	fails     error // may be nil; of saved.run
}

func newSavedMaster(t testing.TB) *savedMaster {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store := saved.NewStore(filepath.Join(t.TempDir(), "saved.saltern"), value.NewMap(), time.Now, log)
	m := &savedMaster{asking: *newAsking(), table: runner.New()}
	saved.New(saved.Config{
		Store:      store,
		Schedule:   upcoming{},
		Configured: value.NewMap(),
		Scheduled:  value.NewMap(),
		Now:        time.Now,
		Log:        log,
	}).AddRunners(m.table)
	return m
}

func (m *savedMaster) Do(ctx context.Context, token string, low *value.Map) (any, error) {
	fun := low.Str("fun")
	m.lows = append(m.lows, low)
	switch {
	case !strings.HasPrefix(fun, "saved."):
		return m.recorded.Do(ctx, token, low)
	case fun == "saved.run" && m.fails != nil:
		result, _ := runner.Outcome("runner", fun, nil, m.fails)
		return result, nil
	case fun == "saved.run":
		return value.NewMap("jid", "20261124155900000001", "minions", []any{"web1"}), nil
	case fun == "saved.jobs": // who asks is not known here
		out := value.NewMap()
		for _, name := range m.export().Map("jobs").Keys() {
			x, err := m.call(ctx, "saved.show", value.NewMap("kind", "job", "name", name))
			if err != nil {
				return nil, err
			}
			o := x.(*value.Map)
			o.Set("runs", true)
			if m.withholds {
				o.Delete("may_run")
				if m.may == nil { // otherwise the rights alone must tell
					o.Set("withheld", []any{"may_run"})
				}
			}
			out.Set(name, o)
		}
		return out, nil
	}
	return m.call(ctx, fun, low.Map("kwarg"))
}

func (m *savedMaster) call(ctx context.Context, fun string, named *value.Map) (any, error) {
	ret, err := m.table.Call(ctx, nil, fun, nil, named)
	result, _ := runner.Outcome("runner", fun, ret, err)
	return result, nil
}

// export returns all objects.
func (m *savedMaster) export() *value.Map {
	text, _ := m.call(context.Background(), "saved.export", nil)
	all, _ := saltyaml.Decode([]byte(value.Str(text)), "export")
	out, _ := all.(*value.Map)
	return out
}

var (
	inputTag    = regexp.MustCompile(`<input ([^>]*)>`)
	areaTag     = regexp.MustCompile(`(?s)<textarea [^>]*name="([^"]*)"[^>]*>(.*?)</textarea>`)
	selectTag   = regexp.MustCompile(`(?s)<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>`)
	optionTag   = regexp.MustCompile(`<option value="([^"]*)"( selected)?>`)
	attributeOf = regexp.MustCompile(`([a-z]+)(?:="([^"]*)")?`)
)

// sentForm returns the form of a page as a browser sends it when nothing is typed.
func sentForm(page string) url.Values {
	_, page, _ = strings.Cut(page, "<main")
	form := url.Values{}
	for _, tag := range inputTag.FindAllStringSubmatch(page, -1) {
		at := map[string]string{}
		for _, a := range attributeOf.FindAllStringSubmatch(tag[1], -1) {
			if _, twice := at[a[1]]; !twice {
				at[a[1]] = html.UnescapeString(a[2])
			}
		}
		_, checked := at["checked"]
		if box := at["type"] == "checkbox" || at["type"] == "radio"; at["name"] != "" && (!box || checked) {
			form.Add(at["name"], at["value"])
		}
	}
	for _, area := range areaTag.FindAllStringSubmatch(page, -1) {
		form.Add(area[1], html.UnescapeString(strings.TrimPrefix(area[2], "\n")))
	}
	for _, list := range selectTag.FindAllStringSubmatch(page, -1) {
		options := optionTag.FindAllStringSubmatch(list[2], -1)
		chosen := 0
		for i, o := range options {
			if o[2] != "" {
				chosen = i
			}
		}
		form.Add(list[1], html.UnescapeString(options[chosen][1]))
	}
	return form
}

// deploy is the form of a job that uses everything.
func deployForm() url.Values {
	form := runForm("name", "deploy", "description", "Brings a version "+hostile, "tgt", "web*", "type", "glob", "fun", "state.apply",
		"arg", "{app}\npillar={version: '{version}'}\nqueue=true", "test_first", "1", "batch", "10%", "stop_above", "5",
		"limit", "60", "may_run", "pam: alice, ops%\nldap: *", "revision", "0")
	form["field_name"] = []string{"app", "version", ""}
	form["field_kind"] = []string{"choice", "text", "text"}
	form["field_default"] = []string{"", "7", ""}
	form["field_pattern"] = []string{"", "[0-9.]+", ""}
	form["field_about"] = []string{"", "which one", ""}
	form["field_choices"] = []string{"shop\nblog, two", "", ""}
	return form
}

// TestSavedJob: the form saves a job as the master keeps it, shows it again, and can be sent again
// without a change.
func TestSavedJob(t *testing.T) {
	c, m := newConsole(t, ""), newSavedMaster(t)
	a := ask(t, c, m, http.MethodPost, "/saved/job", deployForm())
	if a.Code != http.StatusSeeOther {
		t.Fatalf("%d: %s", a.Code, a.Body)
	}

	want, _ := saltyaml.Decode([]byte(`{function: state.apply, target: 'web*', target_type: glob, args: ['{app}'],
  kwargs: {pillar: {version: '{version}'}, queue: true}, test_first: true, batch: 10%, stop_above: 5, timeout: 60,
  fields: [{name: app, kind: choice, choices: [shop, 'blog, two']}, {name: version, kind: text, default: '7',
    pattern: '[0-9.]+', description: which one}], may_run: {pam: [alice, ops%], ldap: ['*']}}`), "want")
	want.(*value.Map).Set("description", "Brings a version "+hostile)
	if got := m.export().Map("jobs").Map("deploy"); !sameSettings(got, want) {
		t.Errorf("%s\nwant %s", value.Repr(got), value.Repr(want))
	}

	before := value.Repr(m.export())
	a = ask(t, c, m, http.MethodGet, "/saved/job?name=deploy", nil)
	form := sentForm(a.Body)
	if a = ask(t, c, m, http.MethodPost, "/saved/job", form); a.Code != http.StatusSeeOther || value.Repr(m.export()) != before {
		t.Errorf("%d: %s\nbefore %s\n%s", a.Code, value.Repr(m.export()), before, a.Body)
	}

	// Who looked earlier is told that somebody else was faster.
	form.Set("batch", "20%")
	if a = ask(t, c, m, http.MethodPost, "/saved/job", form); a.Code != http.StatusSeeOther {
		t.Fatalf("%d: %s", a.Code, a.Body)
	}
	form.Set("batch", "30%")
	if a = ask(t, c, m, http.MethodPost, "/saved/job", form); a.Code != http.StatusBadRequest || !strings.Contains(a.Body, `value="30%"`) {
		t.Errorf("%d: %s", a.Code, a.Body)
	}
}

// TestSavedFormsKeep: whatever is saved, the form that shows it and is sent again changes nothing, or
// the form says that it cannot hold it.
func TestSavedFormsKeep(t *testing.T) {
	random := rand.New(rand.NewPCG(44, 9))
	texts := []string{"", "a", "{app}", "'{app}'", "x={app}", "x=1", "x='1'", "1", "true", "null", "[1, {a: b}]", "pillar={a: [1, '{app}']}",
		hostile, "ä b", " a ", "'two\nlines'", "\"a\\nb\"", "x==y", "#x", "- a", "1.10", "2026-11-24", "0x10", "a: b", "{x: y}", "~"}
	pick := func() string { return texts[random.IntN(len(texts))] }

	kept, refused := 0, 0
	c := newConsole(t, "")
	for i := range 80 {
		m := newSavedMaster(t)
		settings := value.NewMap("function", "test.arg", "target", "web*", "target_type", "glob", "args",
			parsedArgs([]string{}), "fields", []any{value.NewMap("name", "app", "kind", "text", "default", "x"+pick())})
		args, named := savedArguments(strings.Join([]string{pick(), pick(), pick(), "app={app}"}, "\n"))
		settings.Set("args", append(args, pick()))
		settings.Set("kwargs", named)
		settings.Set("name", "job")
		if got, _ := m.call(t.Context(), "saved.set_job", settings); !isMap(got) {
			continue // the master refuses it
		}

		before := value.Repr(m.export())
		a := ask(t, c, m, http.MethodGet, "/saved/job?name=job", nil)
		if a.Code == http.StatusConflict {
			refused++
			continue
		}

		kept++
		b := ask(t, c, m, http.MethodPost, "/saved/job", sentForm(a.Body))
		if after := value.Repr(m.export()); b.Code != http.StatusSeeOther || after != before {
			t.Errorf("%d: %d\nbefore %s\nafter  %s\n%v", i, b.Code, before, after, sentForm(a.Body))
		}
	}

	t.Logf("%d kept, %d refused", kept, refused)
	if kept < 30 {
		t.Errorf("only %d forms were kept", kept)
	}
}

func isMap(v any) bool { _, ok := v.(*value.Map); return ok }

// TestSavedSchedules: entries of the common forms are saved, shown, switched off and on, and deleted.
func TestSavedSchedules(t *testing.T) {
	c, m := newConsole(t, ""), newSavedMaster(t)
	if a := ask(t, c, m, http.MethodPost, "/saved/job", deployForm()); a.Code != http.StatusSeeOther {
		t.Fatalf("%d: %s", a.Code, a.Body)
	}

	for name, tt := range map[string]struct {
		form url.Values
		want string
	}{
		"hourly": {runForm("fun", "fileserver.update", "way", "every", "every", "60", "unit", "minutes", "enabled", "1"),
			"{function: fileserver.update, minutes: 60}"},
		"nightly": {runForm("job", "deploy", "arg", "app=shop\nversion=1.10", "way", "daily", "day", "every day", "at", "02:30", "enabled", "1"),
			"{saved: deploy, kwargs: {app: shop, version: '1.10'}, when: '02:30'}"},
		"weekly": {runForm("fun", "test.arg", "arg", "1\nx=[1, 2]", "way", "daily", "day", "Monday", "at", "7:00", "more", "splay: 60\nmaxrunning: 2"),
			"{function: test.arg, args: [1], kwargs: {x: [1, 2]}, when: Monday 7:00, splay: 60, maxrunning: 2, enabled: false}"},
		"cron": {runForm("fun", "test.arg", "way", "cron", "cron", "0 2 * * mon-fri", "enabled", "1", "description", hostile),
			"{function: test.arg, cron: 0 2 * * mon-fri, description: D}"},
		"other": {runForm("fun", "test.arg", "way", "other", "more", "when: ['Monday 7:00', 'Friday 17:00']", "enabled", "1"),
			"{function: test.arg, when: ['Monday 7:00', 'Friday 17:00']}"},
	} {
		tt.form.Set("name", name)
		tt.form.Set("revision", "0")
		a := ask(t, c, m, http.MethodPost, "/schedule/edit", tt.form)
		want, _ := saltyaml.Decode([]byte(strings.ReplaceAll(tt.want, ": D}", ": \""+strings.ReplaceAll(hostile, `"`, `\"`)+"\"}")), "want")
		if got := m.export().Map("schedules").Map(name); a.Code != http.StatusSeeOther || !sameSettings(got, want) {
			t.Errorf("%s: %d, %s\nwant %s\n%s", name, a.Code, value.Repr(got), value.Repr(want), a.Body)
			continue
		}

		before := value.Repr(m.export())
		a = ask(t, c, m, http.MethodGet, "/schedule/edit?name="+name, nil)
		if a = ask(t, c, m, http.MethodPost, "/schedule/edit", sentForm(a.Body)); a.Code != http.StatusSeeOther || value.Repr(m.export()) != before {
			t.Errorf("%s, again: %d, %s\nbefore %s", name, a.Code, value.Repr(m.export()), before)
		}
	}

	a := ask(t, c, m, http.MethodGet, "/schedule", nil)
	row := a.Body[strings.Index(a.Body, `name="name" value="cron"`):]
	form := sentForm("<main" + row[:strings.Index(row, "</form>")])
	form.Set("name", "cron")
	form.Set("form", formToken(strings.Repeat("ab", 32)))
	form.Set("do", "off")
	if a = ask(t, c, m, http.MethodPost, "/schedule", form); a.Code != http.StatusSeeOther ||
		m.export().Map("schedules").Map("cron").Value("enabled") != false {
		t.Errorf("off: %d, %s", a.Code, value.Repr(m.export().Map("schedules").Map("cron")))
	}
	if a = ask(t, c, m, http.MethodPost, "/schedule", form); a.Code != http.StatusConflict {
		t.Errorf("by an old page: %d", a.Code)
	}

	a = ask(t, c, m, http.MethodGet, "/saved/delete?kind=schedule&name=cron", nil)
	if a = ask(t, c, m, http.MethodPost, "/saved/delete", sentForm(a.Body)); a.Code != http.StatusSeeOther ||
		m.export().Map("schedules").Map("cron") != nil {
		t.Errorf("delete: %d: %s", a.Code, a.Body)
	}
	a = ask(t, c, m, http.MethodGet, "/saved/delete?kind=job&name=deploy", nil)
	if a = ask(t, c, m, http.MethodPost, "/saved/delete", sentForm(a.Body)); a.Code != http.StatusConflict ||
		!strings.Contains(a.Body, "nightly") {
		t.Errorf("a job in use: %d: %s", a.Code, a.Body)
	}
}

// TestScheduleFormObeysAll: a form with something that would not count is refused, and not saved without it.
func TestScheduleFormObeysAll(t *testing.T) {
	c, m := newConsole(t, ""), newSavedMaster(t)
	for name, tt := range map[string]struct {
		form url.Values
		says string
	}{
		"cron beside a time of day": {runForm("way", "daily", "day", "every day", "at", "02:30", "cron", "0 2 * * *"), "By cron"},
		"an interval beside cron":   {runForm("way", "cron", "cron", "0 2 * * *", "every", "10", "unit", "minutes"), "Again and again"},
		"a time of day unchosen":    {runForm("way", "other", "at", "02:30", "more", "minutes: 5"), "At a time of day"},
		"enabled in the settings":   {runForm("way", "cron", "cron", "0 2 * * *", "more", "enabled: false"), "enabled"},
		"minutes twice":             {runForm("way", "every", "every", "10", "unit", "minutes", "more", "minutes: 5"), "minutes"},
		"another name":              {runForm("way", "cron", "cron", "0 2 * * *", "more", "name: b"), "name"},
		"another function":          {runForm("way", "cron", "cron", "0 2 * * *", "more", "function: test.ping"), "function"},
		"another description":       {runForm("way", "cron", "cron", "0 2 * * *", "description", "x", "more", "description: y"), "description"},
		"cron twice":                {runForm("way", "daily", "day", "Monday", "at", "02:30", "more", "cron: 0 2 * * *"), "go together"},
	} {
		t.Run(name, func(t *testing.T) {
			for field, text := range map[string]string{"name": "a", "revision": "0", "fun": "test.arg", "enabled": "1"} {
				tt.form.Set(field, text)
			}
			a := ask(t, c, m, http.MethodPost, "/schedule/edit", tt.form)
			_, problem, _ := strings.Cut(a.Body, `role="alert"`)
			problem, _, _ = strings.Cut(problem, "</p>")
			if a.Code != http.StatusBadRequest || m.export().Map("schedules").Len() > 0 || !strings.Contains(problem, tt.says) {
				t.Errorf("%d, %s: %s", a.Code, value.Repr(m.export().Map("schedules")), problem)
			}
		})
	}
}

// TestSavedTargets: a target is saved, shown and changed.
func TestSavedTargets(t *testing.T) {
	c, m := newConsole(t, ""), newSavedMaster(t)
	a := ask(t, c, m, http.MethodPost, "/saved/target", runForm("name", "web", "tgt", "web* and G@os:Debian", "type", "compound", "revision", "0",
		"description", "the web servers"))
	if a.Code != http.StatusSeeOther || m.export().Map("targets").Map("web").Str("type") != "compound" {
		t.Fatalf("%d: %s", a.Code, a.Body)
	}
	if a = ask(t, c, m, http.MethodGet, "/saved?kind=target", nil); !strings.Contains(a.Body, "the web servers") {
		t.Errorf("%s", a.Body)
	}

	before := value.Repr(m.export())
	a = ask(t, c, m, http.MethodGet, "/saved/target?name=web", nil)
	if a = ask(t, c, m, http.MethodPost, "/saved/target", sentForm(a.Body)); a.Code != http.StatusSeeOther || value.Repr(m.export()) != before {
		t.Errorf("%d: %s", a.Code, a.Body)
	}

	for _, name := range []string{"", "a/b", "../x", "on", hostile, strings.Repeat("x", 100)} {
		a = ask(t, c, m, http.MethodPost, "/saved/target", runForm("name", name, "tgt", "*", "type", "glob", "revision", "0"))
		if a.Code != http.StatusBadRequest || strings.Contains(a.Body, "<b ") {
			t.Errorf("%q: %d", name, a.Code)
		}
	}
}

// TestSavedRun: the form has the fields of the job, and sends each as one text.
func TestSavedRun(t *testing.T) {
	c, m := newConsole(t, ""), newSavedMaster(t)
	form := deployForm()
	form.Del("test_first")
	form.Del("batch")
	form.Del("stop_above")
	form.Del("limit")
	if a := ask(t, c, m, http.MethodPost, "/saved/job", form); a.Code != http.StatusSeeOther {
		t.Fatalf("%d: %s", a.Code, a.Body)
	}

	a := ask(t, c, m, http.MethodGet, "/saved/run?name=deploy", nil)
	run := sentForm(a.Body)
	if got := run.Get("field_version"); got != "7" || !strings.Contains(a.Body, `<option value="blog, two">`) {
		t.Errorf("the default is %q:\n%s", got, a.Body)
	}

	for _, text := range []string{"1.10", "true", "x=y", "{a: b}", "two\nlines", hostile, "  "} {
		m.lows = nil
		run.Set("field_app", "shop")
		run.Set("field_version", text)
		run.Set("field_other", "not asked for")
		a = ask(t, c, m, http.MethodPost, "/saved/run", run)
		want := value.NewMap("name", "deploy", "fields", value.NewMap("app", "shop", "version", text), "revision", int64(1))
		if got := m.lows[len(m.lows)-1].Map("kwarg"); a.Code != http.StatusSeeOther || !value.Equal(got, want) ||
			a.Header.Get("Location") != "/console/job?jid=20261124155900000001" {
			t.Errorf("%q: %d to %q, %s", text, a.Code, a.Header.Get("Location"), value.Repr(got))
		}
	}
}

// TestSavedRunOfNobodyKnown: a saved job that has started, and of which nobody knows who has it, leads to its page: its form
// would start it twice. Other failures show the form again, whatever they quote.
func TestSavedRunOfNobodyKnown(t *testing.T) {
	const jid = "20261124155900000001"
	for problem, leads := range map[string]bool{
		"job " + jid + " has started; look at it before you start it again: x": true,
		"job " + jid + " has started, and nobody waited for its minions: x":    true,
		"job ../keys has started":        false,
		"job " + jid + " cannot be kept": false,
		"job ":                           false,
		"the field 'job " + jid + " has started' does not fit: nothing was run": false,
		jid + " has started": false,
		"run the saved job deploy: job " + jid + " has started": false,
	} {
		t.Run(problem, func(t *testing.T) {
			c, m := newConsole(t, ""), newSavedMaster(t)
			form := deployForm()
			for _, limit := range []string{"test_first", "batch", "stop_above", "limit"} {
				form.Del(limit)
			}
			ask(t, c, m, http.MethodPost, "/saved/job", form)
			run := sentForm(ask(t, c, m, http.MethodGet, "/saved/run?name=deploy", nil).Body)
			m.fails = errors.New(problem)
			a := ask(t, c, m, http.MethodPost, "/saved/run", run)
			to := a.Header.Get("Location")
			if leads && to != "/console/job?jid="+jid || !leads && a.Code != http.StatusBadRequest {
				t.Errorf("%d to %q", a.Code, to)
			}
		})
	}
}

// TestSavedRunBelowSyndics: minions below syndics are not counted, and the form says that they get the job.
func TestSavedRunBelowSyndics(t *testing.T) {
	for _, tt := range []struct {
		lower  bool
		target string
		below  bool
	}{
		{false, "web*", false},
		{true, "web*", true},
		{true, "web1", false},
	} {
		t.Run(fmt.Sprint(tt.target, tt.lower), func(t *testing.T) {
			c, m := newConsole(t, ""), newSavedMaster(t)
			c.cfg.LowerMasters = tt.lower
			m.answers["presence.minions"] = theMinions("web1", "web2")
			form := deployForm()
			form.Set("tgt", tt.target)
			ask(t, c, m, http.MethodPost, "/saved/job", form)
			a := ask(t, c, m, http.MethodGet, "/saved/run?name=deploy", nil)
			if !strings.Contains(a.Body, "selects now") || strings.Contains(a.Body, "below syndics") != tt.below {
				t.Errorf("%d: %s", a.Code, a.Body)
			}
		})
	}
}

// TestSavedRunIsWhatWasShown: a job that was changed since its form was shown is not run, but shown again.
func TestSavedRunIsWhatWasShown(t *testing.T) {
	for name, waits := range map[string]string{"at once": "", "by a run": "1"} {
		t.Run(name, func(t *testing.T) {
			c, m := newConsole(t, ""), newSavedMaster(t)
			form := deployForm()
			form.Set("test_first", waits)
			for _, limit := range []string{"batch", "stop_above", "limit"} {
				form.Del(limit)
			}
			if a := ask(t, c, m, http.MethodPost, "/saved/job", form); a.Code != http.StatusSeeOther {
				t.Fatalf("%d: %s", a.Code, a.Body)
			}

			run := sentForm(ask(t, c, m, http.MethodGet, "/saved/run?name=deploy", nil).Body)
			run.Set("field_app", "shop")
			form.Set("tgt", "*")
			form.Set("revision", run.Get("revision"))
			if a := ask(t, c, m, http.MethodPost, "/saved/job", form); a.Code != http.StatusSeeOther {
				t.Fatalf("%d: %s", a.Code, a.Body)
			}

			m.lows = nil
			a := ask(t, c, m, http.MethodPost, "/saved/run", run)
			if a.Code != http.StatusConflict || m.ran() != nil || !strings.Contains(a.Body, "changed by") {
				t.Errorf("%d, ran %s\n%s", a.Code, value.Repr(m.ran()), a.Body)
			}

			again := sentForm(a.Body)
			if a = ask(t, c, m, http.MethodPost, "/saved/run", again); a.Code != http.StatusSeeOther || again.Get("field_app") != "shop" {
				t.Errorf("again, with app=%s: %d\n%s", again.Get("field_app"), a.Code, a.Body)
			}
			if got := m.ran().Map("kwarg").Value("revision"); got != any(int64(2)) {
				t.Errorf("the master is told revision %v", got)
			}
		})
	}
}

// ran returns the command that ran a saved job, or nil.
func (m *savedMaster) ran() *value.Map {
	for _, low := range m.lows {
		if low.Str("fun") == runSaved {
			return low
		}
	}
	return nil
}

// TestSavedRights: who may not change saved objects is not offered to, and a refusal of the master is
// one here.
func TestSavedRights(t *testing.T) {
	c, m := newConsole(t, ""), newSavedMaster(t)
	if a := ask(t, c, m, http.MethodPost, "/saved/job", deployForm()); a.Code != http.StatusSeeOther {
		t.Fatalf("%d: %s", a.Code, a.Body)
	}

	m.may = func(client, fun string) bool { return false }
	a := ask(t, c, m, http.MethodGet, "/saved", nil)
	for _, no := range []string{"/saved/job", "/saved/delete", "kind=target", "Who may run it"} {
		if strings.Contains(a.Body, no) {
			t.Errorf("an operator is offered %s", no)
		}
	}
	if !strings.Contains(a.Body, "/saved/run?name=deploy") {
		t.Errorf("an operator is not offered to run: %s", a.Body)
	}

	refusing := newAsking()
	for _, path := range []string{"/saved", "/saved?kind=target"} {
		if a := ask(t, c, refusing, http.MethodGet, path, nil); a.Code != http.StatusOK {
			t.Errorf("%s: %d", path, a.Code)
		}
	}
	for path, form := range map[string]url.Values{
		"/saved/job":     deployForm(),
		"/saved/target":  runForm("name", "a", "tgt", "*"),
		"/schedule/edit": runForm("name", "a", "fun", "test.arg", "way", "cron", "cron", "* * * * *"),
		"/saved/delete":  runForm("kind", "job", "name", "a"),
		"/saved/run":     runForm("name", "deploy", "revision", "3"),
		"/schedule":      runForm("name", "a", "do", "off"),
	} {
		if a := ask(t, c, refusing, http.MethodPost, path, form); a.Code != http.StatusUnauthorized && a.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.Code)
		}
		form.Set("form", "x")
		if a := ask(t, c, m, http.MethodPost, path, form); a.Code != http.StatusForbidden {
			t.Errorf("%s of another session: %d", path, a.Code)
		}
	}

	if !slices.Contains(refusing.asked, "runner saved.jobs") {
		t.Error(fmt.Sprint(refusing.asked))
	}
}

// TestJobFormTakesNoRights: who does not see who may run a job cannot save it again, which would take the
// job away from all of them.
func TestJobFormTakesNoRights(t *testing.T) {
	c, m := newConsole(t, ""), newSavedMaster(t)
	if a := ask(t, c, m, http.MethodPost, "/saved/job", deployForm()); a.Code != http.StatusSeeOther {
		t.Fatalf("%d: %s", a.Code, a.Body)
	}
	form := sentForm(ask(t, c, m, http.MethodGet, "/saved/job?name=deploy", nil).Body)
	form.Set("may_run", "")
	before := value.Repr(m.export())

	for _, withholds := range []string{"by its rights", "by its answer"} {
		m.withholds = true
		m.may = nil
		if withholds == "by its rights" {
			m.may = func(_, fun string) bool { return fun == setSavedJob }
		}

		a := ask(t, c, m, http.MethodGet, "/saved/job?name=deploy", nil)
		if a.Code != http.StatusForbidden || !strings.Contains(a.Body, "saved.jobs") || strings.Contains(a.Body, "<textarea") {
			t.Errorf("%s: %d: %s", withholds, a.Code, a.Body)
		}
	}

	m.may = func(_, fun string) bool { return fun == setSavedJob }
	if a := ask(t, c, m, http.MethodPost, "/saved/job", form); a.Code != http.StatusForbidden || value.Repr(m.export()) != before {
		t.Errorf("%d, saved %s", a.Code, value.Repr(m.export()))
	}
	for _, page := range []string{"/saved", "/run"} {
		m.may = func(_, fun string) bool { return fun == setSavedJob || fun == "" }
		if a := ask(t, c, m, http.MethodGet, page, nil); a.Code != http.StatusOK || strings.Contains(a.Body, "/saved/job") {
			t.Errorf("%s offers the form: %d %s", page, a.Code, a.Body)
		}
	}
}

// TestRunnerProblem: errors of runners are told without what is not for people.
func TestRunnerProblem(t *testing.T) {
	for text, want := range map[string]string{
		"\nPassed invalid arguments: the argument name is missing\n\nUsage:\n\n    salt-run x\n": "the argument name is missing",
		"Exception occurred in runner saved.run: no: space\x1b[2J":                               "no: space [2J",
		"Exception occurred in runner saved.run: runner saved.run: no field x":                   "no field x",
		"": "The master did not do that, and does not say why.",
	} {
		if got := runnerProblem(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
