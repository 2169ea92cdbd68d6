package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"saltern/master/value"
)

const theJID = "20261124155900000001"

// theHistoryJobs is the answer of fleet.jobs.
func theHistoryJobs() *value.Map {
	return value.NewMap("next", "next-"+hostile, "jobs", []any{
		value.NewMap("jid", theJID, "time", "2026-11-24T15:59:00Z", "function", "state.apply", "user", says, "target", says, "target_type", "glob",
			"minions", int64(9), "ok", int64(3), "failed", int64(2), "absent", int64(4)),
		value.NewMap("jid", "20261123155900000001", "time", "2026-11-23T15:59:00Z", "function", says, "user", "bob", "ok", int64(1), "failed", int64(0)),
		value.NewMap("jid", says, "function", "test.ping"),
		nil,
	})
}

// TestOutcomeOfRunsOfStates: Jobs has the words and counts of Fleet.
func TestOutcomeOfRunsOfStates(t *testing.T) {
	m := &recorded{answers: theAnswers()}
	m.answers["fleet.jobs"] = value.NewMap("next", "", "jobs", []any{value.NewMap("jid", theJID, "time", "2026-11-24T15:59:00Z", "function", "state.apply",
		"ok", int64(30), "changed", int64(8), "would_change", int64(20), "failed", int64(45), "error", int64(5), "minions", int64(86), "absent", int64(4), "left_out", int64(3), "pending", int64(7))})
	a := ask(t, newConsole(t, ""), m, http.MethodGet, "/jobs", nil)
	for _, text := range []string{"40 failed<", "5 could not run states<", "in a batch: 76 of 86 have it<", "7 not (yet)<", "1 no answer yet<", "3 do not get it<", "20 would change<", "8 changed<", "2 ok<"} {
		if !strings.Contains(a.Body, text) {
			t.Errorf("no %q in %s", text, a.Body)
		}
	}
}

func TestOutcomesOnThePageOfJobs(t *testing.T) {
	c := newConsole(t, "")
	m := &recorded{answers: theAnswers()}
	for path, want := range map[string][]string{
		"/jobs":          {"2 failed", "4 no answer yet", "3 ok", "before=" + theJID},
		"/jobs?failed=1": {"2 failed", "1 ok", "of the history", "from=next-"},
		"/jobs?minion=x": {"Clear the filter", "of the history"},
	} {
		a := ask(t, c, m, http.MethodGet, path, nil)
		for _, text := range want {
			if a.Code != http.StatusOK || !strings.Contains(a.Body, text) {
				t.Errorf("%s: %d, no %q in %s", path, a.Code, text, a.Body)
			}
		}
	}

	a := ask(t, c, m, http.MethodGet, "/jobs?minion="+url.QueryEscape("*/"+says), nil)
	if a.Code != http.StatusOK || !strings.Contains(a.Body, "not the id of a minion") {
		t.Errorf("%d\n%s", a.Code, a.Body)
	}
}

// TestJobsWithoutAHistory: without the history or the right to see it the page has the jobs and no outcomes.
func TestJobsWithoutAHistory(t *testing.T) {
	m := &recorded{answers: theAnswers()}
	m.answers["fleet.jobs"] = "Exception occurred in runner fleet.jobs: this master keeps no history of runs"
	c := newConsole(t, "")
	if a := ask(t, c, m, http.MethodGet, "/jobs", nil); a.Code != http.StatusOK || !strings.Contains(a.Body, theJID) {
		t.Errorf("%d\n%s", a.Code, a.Body)
	}
	if a := ask(t, c, m, http.MethodGet, "/jobs?failed=1", nil); !strings.Contains(a.Body, "keeps no history") {
		t.Errorf("%d\n%s", a.Code, a.Body)
	}

	m.may = func(_, fun string) bool { return fun == "jobs.list_jobs_filter" }
	m.asked = nil
	a := ask(t, c, m, http.MethodGet, "/jobs?failed=1&minion=web1", nil)
	if a.Code != http.StatusOK || strings.Contains(a.Body, `name="failed"`) || strings.Join(m.asked, ", ") != "runner jobs.list_jobs_filter" {
		t.Errorf("%d, asked %q\n%s", a.Code, m.asked, a.Body)
	}
}

// TestPollsAreHidden: unless the user wants them.
func TestPollsAreHidden(t *testing.T) {
	m := &recorded{answers: theAnswers()}
	list := m.answers["jobs.list_jobs_filter"].([]any)
	for i, fun := range []string{"saltutil.running", "saltutil.is_running", "test.ping"} {
		list = append(list, value.NewMap("JID", fmt.Sprintf("2026112415590000000%d", i+2), "Function", fun, "Target", "*", "User", "x"))
	}
	m.answers["jobs.list_jobs_filter"] = list
	for query, want := range map[string]int{"": 2, "?polls=1": 4} {
		a := ask(t, newConsole(t, ""), m, http.MethodGet, "/jobs"+query, nil)
		if n := strings.Count(a.Body, "rowheader"); n != want {
			t.Errorf("%q: %d rows, want %d", query, n, want)
		}
	}
}

func TestStopAJob(t *testing.T) {
	c := newConsole(t, "")
	token := formToken(strings.Repeat("ab", 32))
	for name, tt := range map[string]struct {
		form   url.Values
		change func(*recorded)
		code   int
		says   string
		called string
	}{
		"stop":             {url.Values{"jid": {theJID}, "do": {"term"}}, nil, http.StatusSeeOther, "", "saltutil.term_job"},
		"kill":             {url.Values{"jid": {theJID}, "do": {"kill"}}, nil, http.StatusSeeOther, "", "saltutil.kill_job"},
		"another function": {url.Values{"jid": {theJID}, "do": {"cmd.run"}}, nil, http.StatusBadRequest, "no way to stop", ""},
		"no job":           {url.Values{"jid": {"x/../y"}, "do": {"term"}}, nil, http.StatusBadRequest, "not the number", ""},
		"all have answered": {url.Values{"jid": {theJID}, "do": {"term"}}, func(m *recorded) {
			m.answers["jobs.list_job"].(*value.Map).Set("Minions", []any{"web1"})
		}, http.StatusConflict, "all have answered", ""},
		"refused": {url.Values{"jid": {theJID}, "do": {"term"}}, func(m *recorded) {
			delete(m.answers, "saltutil.term_job")
		}, http.StatusForbidden, "does not permit you saltutil.term_job", ""},
		"keys are gone": {url.Values{"jid": {theJID}, "do": {"term"}}, func(m *recorded) {
			m.answers["saltutil.term_job"] = value.NewMap()
		}, http.StatusConflict, "none was told", "saltutil.term_job"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &recorded{answers: theAnswers()}
			for _, fun := range []string{"saltutil.term_job", "saltutil.kill_job"} {
				m.answers[fun] = value.NewMap("jid", "20261124160000000001", "minions", []any{"web4"})
			}
			if tt.change != nil {
				tt.change(m)
			}
			tt.form.Set("form", token)
			a := ask(t, c, m, http.MethodPost, "/job/stop", tt.form)
			if a.Code != tt.code || !strings.Contains(a.Body, tt.says) {
				t.Errorf("%d\n%s", a.Code, a.Body)
			}
			if tt.called != "" && !strings.Contains(strings.Join(m.asked, ","), tt.called) {
				t.Errorf("asked %q", m.asked)
			}
		})
	}

	m := &recorded{answers: theAnswers()}
	if a := ask(t, c, m, http.MethodPost, "/job/stop", url.Values{"jid": {theJID}, "do": {"kill"}}); a.Code != http.StatusForbidden || len(m.asked) > 0 {
		t.Errorf("a form of somebody else: %d, asked %q", a.Code, m.asked)
	}
	a := ask(t, c, m, http.MethodGet, "/job/stop?do=kill&jid="+theJID, nil)
	if a.Code != http.StatusOK || !strings.Contains(a.Body, "<li>web4</li>") || !strings.Contains(a.Body, "Kill the job where it runs") || strings.Contains(strings.Join(m.asked, ","), "saltutil") {
		t.Errorf("the question: %d, asked %q\n%s", a.Code, m.asked, a.Body)
	}
	for query, want := range map[string]string{
		"told=term&n=3":         "3 minions were asked to end the job",
		"told=kill&n=1":         "1 minion was told to end the job at once",
		"told=x&n=1":            "",
		"told=kill&n=-1":        "",
		"told=kill&n=999999999": "",
	} {
		q, _ := url.ParseQuery(query)
		if got := stoppedNotice(q); (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", query, got)
		}
	}
}
