package console

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"saltern/master/value"
)

// theLastRuns is the answer of fleet.last for the minions of theMinions.
func theLastRuns() *value.Map {
	return value.NewMap("next", "", "minions", value.NewMap(
		"web1", value.NewMap("result", "failed", "time", "2026-11-24T15:50:00Z", "jid", "20261124155000000001", "function", "state.apply",
			"ok", int64(3), "changed", int64(1), "would_change", int64(0), "failed", int64(2), "drifted", int64(1)),
		hostile, value.NewMap("result", "failed", "time", "2026-11-24T15:50:00Z", "jid", "20261124155000000001", "function", says, "failed", int64(2),
			"drifted", int64(1), "failed_states", []any{
				value.NewMap("id", says, "function", says, "sls", says, "comment", says), value.NewMap("comment", "Rendering SLS failed "+says)},
			"changed_states", []any{value.NewMap("id", says, "function", "file.managed", "cause", "drift", "changes", "-old\n+new "+says),
				value.NewMap("id", "new", "function", "file.managed", "cause", "new files", "changes", "-a\n+b")}),
		"web9", value.NewMap("result", says, "time", says, "jid", says, "function", says),
		"new1", value.NewMap("result", "never"),
	))
}

// theRuns is the answer of fleet.runs for a minion.
func theRuns() *value.Map {
	run := func(result, function, at string) any {
		return value.NewMap("minion", hostile, "time", at, "jid", "20261124155000000001", "user", "alice "+says, "function", function, "result", result)
	}
	return value.NewMap("next", "x", "runs", []any{
		run("failed", "state.apply", "2026-11-24T15:50:00Z"),
		run("ok", "test.ping", "2026-11-23T10:00:00Z"),
		run(says, says, says),
	})
}

// answersOfMany has n minions with runs and grains.
func answersOfMany(n int) map[string]any {
	list, runs, grains := []any{}, value.NewMap(), value.NewMap()
	results := outcomes()
	for i := range n {
		id := fmt.Sprintf("web%04d.example.com", i)
		list = append(list, value.NewMap("id", id, "key", "accepted", "connected", i%10 != 0, "address", "192.0.2.7", "seen", 1795535999.5-float64(i)))
		o := results[i%5]
		runs.Set(id, value.NewMap("result", o.Name, "time", fmt.Sprintf("2026-11-%02dT15:00:00Z", 1+i%24), "jid", "20261124155000000001",
			"function", "state.apply", "ok", int64(9), "failed", int64(i%3), "drifted", int64(i%2)))
		grains.Set(id, value.NewMap("osfinger", fmt.Sprintf("Debian-%d", 9+i%4), "saltversion", "3008.3", "num_cpus", int64(i%12), "roles", []any{"web", "db"}))
	}
	m := theAnswers()
	m["presence.minions"] = value.NewMap("minions", list, "subscriptions", value.NewMap())
	m["fleet.last"] = value.NewMap("minions", runs, "next", "")
	m["cache.grains"] = grains
	return m
}

// caption returns the caption of the table on a page.
func caption(body string) string {
	_, rest, _ := strings.Cut(body, "<caption>")
	text, _, _ := strings.Cut(rest, "</caption>")
	return text
}

// firstMinion returns the first row of the page Minions.
func firstMinion(body string) string {
	_, rest, _ := strings.Cut(body, `/minion?id=`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

func TestFiltersOfMinions(t *testing.T) {
	c := newConsole(t, "")
	m := &recorded{answers: answersOfMany(500)}
	for query, want := range map[string]string{
		"":                             "All 500 minions with an accepted key",
		"q=WEB000":                     "10 of 500 minions with an accepted key",
		"presence=away":                "50 of 500 minions with an accepted key",
		"presence=connected&q=web000":  "9 of 500 minions with an accepted key",
		"result=failed":                "100 of 500 minions with an accepted key",
		"result=failed&result=ok":      "100 of 500 minions with an accepted key",
		"result=drifted":               "250 of 500 minions with an accepted key",
		"age=1d":                       "20 of 500 minions with an accepted key",
		"age=over-1d":                  "480 of 500 minions with an accepted key",
		"age=" + url.QueryEscape(says): "All 500 minions with an accepted key",
		"tgt=web00*&presence=away":     "10 of 500 minions with an accepted key",
		"result=never":                 "",
		"q=" + url.QueryEscape(says):   "",
	} {
		t.Run(query, func(t *testing.T) {
			a := ask(t, c, m, http.MethodGet, "/minions?"+query, nil)
			if got := caption(a.Body); a.Code != http.StatusOK || got != want {
				t.Errorf("%d, caption %q, want %q", a.Code, got, want)
			}
			if want == "" && !strings.Contains(a.Body, "Show all minions") {
				t.Error("the empty list names no next step")
			}
		})
	}
}

func TestOrderOfMinions(t *testing.T) {
	c := newConsole(t, "")
	m := &recorded{answers: answersOfMany(500)}
	for query, want := range map[string]string{
		"sort=name":                       "web0000.example.com",
		"sort=-name":                      "web0499.example.com",
		"sort=presence":                   "web0001.example.com",
		"sort=-result":                    "web0004.example.com",
		"sort=heard":                      "web0499.example.com",
		"sort=-run":                       "web0023.example.com",
		"sort=-num_cpus&columns=num_cpus": "web0011.example.com",
		"sort=nothing":                    "web0000.example.com",
		"page=3&columns=os":               "web0400.example.com",
	} {
		t.Run(query, func(t *testing.T) {
			a := ask(t, c, m, http.MethodGet, "/minions?"+query, nil)
			if got := firstMinion(a.Body); a.Code != http.StatusOK || got != want {
				t.Errorf("%d, first %q, want %q", a.Code, got, want)
			}
		})
	}
}

// TestColumnsOfMinions: columns are grains by name, at most maxColumns, and a cookie keeps them.
func TestColumnsOfMinions(t *testing.T) {
	c := newConsole(t, "")
	m := &recorded{answers: answersOfMany(3)}
	a := ask(t, c, m, http.MethodGet, "/minions?columns=&columns=roles&columns=num_cpus,"+url.QueryEscape(says+",a b,x;y"), nil)
	cookies := strings.Join(a.Header.Values("Set-Cookie"), "\n")
	if !strings.Contains(cookies, "saltern_columns=roles,num_cpus;") && !strings.Contains(cookies, `saltern_columns="roles,num_cpus";`) {
		t.Errorf("cookies %q", cookies)
	}
	if !strings.Contains(a.Body, `data-label="roles" class="long">web, db</td>`) || strings.Contains(a.Body, "Debian") {
		t.Errorf("%s", a.Body)
	}

	many := strings.Repeat("a,", 3) + "b,c,d,e,f,g,h,i,j,k," + strings.Repeat("x", 1000)
	a = ask(t, c, m, http.MethodGet, "/minions?columns="+many, nil)
	if n := strings.Count(a.Body, `class="sort"`); n != 5+maxColumns {
		t.Errorf("%d heads", n)
	}
}

// TestMinionTable: all rows are in the CSV, and no cell is a formula.
func TestMinionTable(t *testing.T) {
	c := newConsole(t, "")
	m := &recorded{answers: answersOfMany(450)}
	evil := "=HYPERLINK(\"http://evil\")"
	m.answers["presence.minions"].(*value.Map).Set("minions", append(m.answers["presence.minions"].(*value.Map).List("minions"),
		value.NewMap("id", evil, "key", "accepted")))
	m.answers["cache.grains"].(*value.Map).Set(evil, value.NewMap("osfinger", evil))
	a := ask(t, c, m, http.MethodGet, "/minions.csv?columns=osfinger", nil)
	lines, err := csv.NewReader(strings.NewReader(a.Body)).ReadAll()
	if err != nil || len(lines) != 452 || a.Header.Get("Content-Type") != "text/csv; charset=utf-8" {
		t.Fatalf("%d lines, %v, %v", len(lines), err, a.Header)
	}
	for _, line := range lines {
		for _, cell := range line {
			if strings.HasPrefix(cell, "=") {
				t.Errorf("a formula: %q", cell)
			}
		}
	}
}

// TestMinionsOfAViewer: who may not see the history or grains gets no columns of them, and nobody asks for them.
func TestMinionsOfAViewer(t *testing.T) {
	m := &recorded{answers: answersOfMany(3), may: func(_, fun string) bool { return fun == "presence.minions" }}
	a := ask(t, newConsole(t, ""), m, http.MethodGet, "/minions?result=failed&sort=osfinger", nil)
	if a.Code != http.StatusOK || strings.Contains(a.Body, "Debian") || strings.Contains(a.Body, `name="result"`) {
		t.Errorf("%d\n%s", a.Code, a.Body)
	}
	if got := strings.Join(m.asked, ", "); got != "runner presence.minions" {
		t.Errorf("asked %s", got)
	}
}

// TestLastRunsGoOn: a master with more minions than an answer has tells where to go on, and one that repeats
// itself ends the question.
func TestLastRunsGoOn(t *testing.T) {
	m := &recorded{answers: theAnswers()}
	m.answers["fleet.last"] = value.NewMap("minions", value.NewMap("web1", value.NewMap("result", "ok")), "next", "web1")
	a := ask(t, newConsole(t, ""), m, http.MethodGet, "/minions", nil)
	if n := strings.Count(strings.Join(m.asked, " "), "fleet.last"); a.Code != http.StatusOK || n != 2 {
		t.Errorf("%d, asked %d times", a.Code, n)
	}
}

func BenchmarkMinions(b *testing.B) {
	c := newConsole(b, "")
	m := &recorded{answers: answersOfMany(2000)}
	for b.Loop() {
		m.asked = nil
		ask(b, c, m, http.MethodGet, "/minions?sort=-result&page=3", nil)
	}
}
