package console

import (
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

// TestJobOfAMinionThatIsAway (F3, C4): the page of a job says at once that a minion is not
// connected, and waits for it no longer than it may take to come back; in a cluster, where it
// may be connected elsewhere, it waits as before.
func TestJobOfAMinionThatIsAway(t *testing.T) {
	answers := theAnswers()
	answers["jobs.list_job"] = value.NewMap("jid", "20261124155900000001", "Function", "test.ping", "Target", "*", "Target-type", "glob", "User", "alice",
		"Minions", []any{"up", "away"}, "Result", value.NewMap())
	answers["presence.minions"] = theMinions("up", "away") // the second is not connected

	for _, c := range []struct {
		name    string
		cluster bool
		age     time.Duration
		done    bool // the minion that is connected has answered
		may     bool // presence may be seen
		word    string
		live    bool
	}{
		{"a moment ago", false, 10 * time.Second, true, true, "not connected", true},
		{"minutes ago", false, 2 * time.Minute, true, true, "not connected", false},
		{"another one works", false, 2 * time.Minute, false, true, "not connected", true},
		{"hours ago", false, 2 * time.Hour, false, true, "no answer", false},
		{"cluster", true, 2 * time.Minute, true, true, "no answer yet; not at this master", true},
		{"no right to see presence", false, 2 * time.Minute, true, false, "no answer yet", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			con, err := New(Config{
				Secure:  true,
				Cluster: c.cluster,
				Systems: []string{"pam"},
				Log:     slog.New(slog.DiscardHandler),
				Now:     func() time.Time { return time.Date(2026, 11, 24, 15, 59, 0, 0, time.UTC).Add(c.age) },
			})
			if err != nil {
				t.Fatal(err)
			}

			result := value.NewMap()
			if c.done {
				result.Set("up", value.NewMap("return", true, "retcode", 0))
			}

			answers["jobs.list_job"].(*value.Map).Set("Result", result)
			m := &recorded{
				answers: answers,
				may:     func(_, fun string) bool { return c.may || fun != "presence.minions" },
			}

			text := ask(t, con, m, "GET", "/job?jid=20261124155900000001", nil).Body
			_, row, _ := strings.Cut(strings.Replace(text, ">away</a>", ">away", 1), ">away <span")
			_, row, _ = strings.Cut(row, ">")
			if word, _, _ := strings.Cut(row, "<"); word != c.word {
				t.Errorf("the minion is %q, want %q", word, c.word)
			}

			if live := strings.Contains(text, "data-stream="); live != c.live {
				t.Errorf("live: %t", live)
			}
		})
	}
}

// TestOwnJobOfASavedJob: whom only a saved job names sees the job that he has started; the master says which
// ones those are.
func TestOwnJobOfASavedJob(t *testing.T) {
	for name, c := range map[string]struct {
		outcome any // of saved.outcome; nil: refused
		run     bool
		code    int
		says    string
	}{
		"his own job":       {theJob(), false, http.StatusOK, "service.running"},
		"another's job":     {"Exception occurred in runner saved.outcome: Error: there is no job 1 that otto has started", false, http.StatusForbidden, "there is no job 1 that otto has started"},
		"no saved job":      {nil, false, http.StatusUnauthorized, ""},
		"an operator":       {nil, true, http.StatusForbidden, "may be running"},
		"a master's secret": {value.NewMap("jid", "1"), false, http.StatusBadGateway, "does not describe the job"},
		"it says True":      {true, false, http.StatusBadGateway, "does not describe the job"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &recorded{answers: theAnswers(), may: func(client, _ string) bool { return c.run && client == "local_async" }}
			delete(m.answers, "jobs.list_job")
			delete(m.answers, "presence.minions")
			if c.outcome != nil {
				m.answers[outcomeOfSaved] = c.outcome
			}
			a := ask(t, newConsole(t, ""), m, http.MethodGet, "/job?jid=20261124155900000001", nil)
			if a.Code != c.code || !strings.Contains(strings.ToLower(a.Body), c.says) {
				t.Errorf("%d\n%s", a.Code, a.Body)
			}
			for _, unwanted := range []string{"<b ", "Run again", "do=kill"} {
				if !c.run && strings.Contains(a.Body, unwanted) {
					t.Errorf("the page offers %q", unwanted)
				}
			}
		})
	}
}

// TestJobHasTheHistoryResults: the page of a job says of a return what the history and the page Fleet say.
func TestJobHasTheHistoryResults(t *testing.T) {
	t.Parallel()
	tag := "file_|-a_|-a_|-managed"
	states := func(result any) any {
		return value.NewMap(tag, value.NewMap("result", result, "changes", value.NewMap("x", 1), "__run_num__", int64(0)))
	}
	for _, tt := range []struct {
		name, function string
		ret, code      any
		want           string
	}{
		{"a return over the quota", "state.apply", "VALUE_TRIMMED: over its quota", int64(2), "failed"},
		{"errors of rendering", "state.apply", []any{"Rendering SLS failed"}, int64(1), "could not run states"},
		{"a masterless run", "state.apply", value.NewMap("local", states(true)), int64(0), "changed"},
		{"two functions", "test.ping,state.apply", value.NewMap("test.ping", true, "state.apply", states(nil)),
			value.NewMap("test.ping", int64(0), "state.apply", int64(0)), "would change"},
		{"a failure among two", "test.ping,cmd.run", value.NewMap("test.ping", true, "cmd.run", ""),
			value.NewMap("test.ping", int64(0), "cmd.run", int64(3)), "failed"},
		{"no failure among two", "test.ping,cmd.run", value.NewMap("test.ping", true, "cmd.run", ""),
			value.NewMap("test.ping", int64(0), "cmd.run", int64(0)), "ok"},
		{"a text of another function", "cmd.run", "no", int64(1), "failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := value.NewMap("Minions", []any{"web1"}, "Result", value.NewMap("web1", value.NewMap("return", tt.ret, "retcode", tt.code)))
			m.Set("Function", tt.function)
			if names := strings.Split(tt.function, ","); len(names) > 1 {
				m.Set("Function", value.List(names))
			}
			if got := results(m); len(got) != 1 || got[0].Word != tt.want {
				t.Errorf("%+v, want %q", got, tt.want)
			}
		})
	}
}

// TestSyndicIsNoMinionOfAJob: a syndic that answers nothing is in no row; one that has answered is.
func TestSyndicIsNoMinionOfAJob(t *testing.T) {
	m := value.NewMap("Function", "test.ping", "Minions", []any{"mid", "web1", "both"}, "Syndics", []any{"mid"},
		"Result", value.NewMap("both", value.NewMap("return", true, "retcode", int64(0))))
	var rows []string
	for _, row := range results(m) {
		rows = append(rows, row.ID+" "+row.Word)
	}
	if got := strings.Join(rows, ", "); got != "web1 no answer yet, both ok" {
		t.Error(got)
	}
}

// TestNumbersOfAJobLeadToItsMinions: each number of a job's page leads to as many minions as it says.
func TestNumbersOfAJobLeadToItsMinions(t *testing.T) {
	t.Parallel()
	m := &recorded{answers: theAnswers()}
	c := newConsole(t, "")
	card := regexp.MustCompile(`<dt><a href="/console(/job\?[^"]*)">[^<]*</a></dt><dd>(\d+)</dd>`)
	cards := card.FindAllStringSubmatch(ask(t, c, m, http.MethodGet, "/job?jid=20261124155900000001", nil).Body, -1)
	if len(cards) < 5 {
		t.Fatalf("%d numbers: %v", len(cards), cards)
	}
	for _, at := range cards {
		body := ask(t, c, m, http.MethodGet, strings.ReplaceAll(at[1], "&amp;", "&"), nil).Body
		if n := strings.Count(body, `<section class="result`); strconv.Itoa(n) != at[2] {
			t.Errorf("%s: %d minions, want %s", at[1], n, at[2])
		}
		if !strings.Contains(body, "All of them") {
			t.Errorf("%s: no way back", at[1])
		}
	}
}

// TestSavedAgain: the page of a job whose limits the form lacks leads whoever may run it to its saved job.
func TestSavedAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		user string
		may  func(client, fun string) bool
		want bool
	}{
		"an administrator":      {"otto", func(string, string) bool { return true }, true},
		"who has started it":    {"alice", func(string, string) bool { return false }, true},
		"somebody else":         {"otto", func(_, fun string) bool { return fun != setSavedJob }, false},
		"a viewer of the fleet": {"otto", func(_, fun string) bool { return fun == "jobs.list_job" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := docBatch()
			job.Set("User", tt.user)
			m := &recorded{answers: map[string]any{"jobs.list_job": job, "presence.minions": value.NewMap()}, may: tt.may}
			a := ask(t, newConsole(t, ""), m, http.MethodGet, "/job?jid=20261124155940000000", nil)
			if got := strings.Contains(a.Body, "Run the saved job anew…"); a.Code != http.StatusOK || got != tt.want {
				t.Errorf("%d, offered: %t", a.Code, got)
			}
		})
	}
}

// TestShortAnswer: only a whole text of one line stands beside the name of its minion.
func TestShortAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text boundText
		want bool
	}{
		{boundText{Text: "True"}, true},
		{boundText{}, false},
		{boundText{Text: "a\nb"}, false},
		{boundText{Text: "cut", Cut: 1}, false},
		{boundText{Text: strings.Repeat("x", 61)}, false},
	} {
		if got := tt.text.Short(); got != tt.want {
			t.Errorf("%+v: %t", tt.text, got)
		}
	}
}

// TestTabOfJob: browsers keep the titles of pages, so that of a job has none of its arguments. Its heading has them.
func TestTabOfJob(t *testing.T) {
	const jid = "20261124155900000001"
	job := theJob().(*value.Map).Clone()
	job.Set("Function", "cmd.run")
	job.Set("Arguments", []any{"mysql -phush <b>"})
	m := &recorded{answers: theAnswers()}
	m.answers["jobs.list_job"] = job
	a := ask(t, newConsole(t, ""), m, http.MethodGet, "/job?jid="+jid, nil)
	_, after, _ := strings.Cut(a.Body, "<title>")
	title, body, _ := strings.Cut(after, "</title>")
	if title != "cmd.run "+jid+" – Saltern" {
		t.Errorf("the title is %q", title)
	}
	if _, heading, _ := strings.Cut(body, "<h1"); !strings.Contains(heading[:min(len(heading), 200)], "mysql -phush &lt;b&gt;") {
		t.Errorf("the heading has no arguments:\n%.300s", heading)
	}
}

// TestJobOfNobodyKnown: the page of a job that only minions below syndics can have says so until one is named.
func TestJobOfNobodyKnown(t *testing.T) {
	const says = "A syndic may still name some"
	for _, lower := range []bool{false, true} {
		for _, minions := range [][]any{nil, {"low1"}} {
			c := newConsole(t, "")
			c.cfg.LowerMasters = lower
			m := &recorded{answers: theAnswers()}
			m.answers["jobs.list_job"] = value.NewMap("Function", "test.ping", "Target", "low*", "Target-type", "glob",
				"Minions", minions, "Result", value.NewMap())
			a := ask(t, c, m, http.MethodGet, "/job?jid=20261124155900000001", nil)
			if want := lower && minions == nil; a.Code != http.StatusOK || strings.Contains(a.Body, says) != want {
				t.Errorf("lower masters %t, %v: %d\n%s", lower, minions, a.Code, a.Body)
			}
		}
	}
}
