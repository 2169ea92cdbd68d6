package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"saltern/master/value"
)

// theTrend is the answer of fleet.trend: 12 days, planted failures and drift.
func theTrend() *value.Map {
	days := []any{}
	for i := range 12 {
		days = append(days, value.NewMap("day", fmt.Sprintf("2026-11-%02d", 13+i), "ok", int64(30+i), "changed", int64(12-i),
			"would_change", int64(i%3), "failed", int64(i*i%7), "error", int64(i%2), "answered", int64(4), "absent", int64(20-i)))
	}
	drift := func(minion, cause, changes string, corrected bool) any {
		return value.NewMap("minion", minion, "time", "2026-11-24T15:50:00Z", "jid", "20261124155000000001", "id", "motd "+says,
			"function", "file.managed", "cause", cause, "changes", changes, "corrected", corrected)
	}
	return value.NewMap("minions", int64(80), "drifted", int64(2), "days", days,
		"last_run", value.NewMap("ok", int64(50), "changed", int64(9), "would_change", int64(2), "failed", int64(6), "error", int64(1), "never", int64(12)),
		"worst_states", []any{
			value.NewMap("id", "nginx", "function", "service.running", "minions", int64(5), "minion", "web1", "comment", "Job for nginx.service failed"),
			value.NewMap("id", says, "function", says, "minions", int64(1), "minion", hostile, "comment", says),
		},
		"slowest_states", []any{
			value.NewMap("id", "packages", "function", "pkg.installed", "minions", int64(40), "minion", "web1", "seconds", 83.25),
			value.NewMap("id", says, "function", "cmd.run", "minions", int64(1), "minion", hostile, "seconds", 0.25),
		},
		"drift", []any{
			drift("web1", "drift", "-PermitRootLogin no\n+PermitRootLogin yes", true),
			drift(hostile, "recurring", says+"\n+x", false),
		})
}

// TestFleetWithoutAnything: each empty page says the next step.
func TestFleetWithoutAnything(t *testing.T) {
	for name, tt := range map[string]struct {
		answer any
		want   string
	}{
		"no history":  {"Exception occurred in runner fleet.trend: this master keeps no history of runs", "keeps no history"},
		"no minions":  {value.NewMap("minions", int64(0)), "Show the keys"},
		"no states":   {value.NewMap("minions", int64(3), "last_run", value.NewMap("never", int64(3))), "Run state.apply"},
		"odd numbers": {value.NewMap("minions", "x", "days", "y", "last_run", int64(1), "drift", []any{nil, "z"}), "Show the keys"},
		"odd lists": {value.NewMap("minions", int64(1), "days", []any{nil, "z"}, "worst_states", []any{nil},
			"slowest_states", []any{"x"}, "drift", []any{nil, "z"}), "States that fail"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &recorded{answers: theAnswers()}
			m.answers["fleet.trend"] = tt.answer
			a := ask(t, newConsole(t, ""), m, http.MethodGet, "/fleet", nil)
			if a.Code != http.StatusOK || !strings.Contains(a.Body, tt.want) {
				t.Errorf("%d\n%s", a.Code, a.Body)
			}
		})
	}
}

// TestPagesWhileRunsAreMissing: a page whose runs are not all there yet says so.
func TestPagesWhileRunsAreMissing(t *testing.T) {
	for path, fun := range map[string]string{
		"/fleet":          "fleet.trend",
		"/minions":        "fleet.last",
		"/minion?id=web1": "fleet.runs",
		"/jobs":           "fleet.jobs",
	} {
		for _, partial := range []bool{false, true} {
			t.Run(fmt.Sprint(path, partial), func(t *testing.T) {
				m := &recorded{answers: theAnswers()}
				answer := m.answers[fun].(*value.Map).Clone()
				answer.Set("partial", partial)
				m.answers[fun] = answer
				a := ask(t, newConsole(t, ""), m, http.MethodGet, path, nil)
				if got := strings.Contains(a.Body, "runs may be missing"); a.Code != http.StatusOK || got != partial {
					t.Errorf("%d, it says so: %v\n%s", a.Code, got, a.Body)
				}
			})
		}
	}
}

// TestFleetOfAViewer: without other rights the page has no links to where the master would refuse.
func TestFleetOfAViewer(t *testing.T) {
	m := &recorded{answers: theAnswers(), may: func(_, fun string) bool { return fun == "fleet.trend" }}
	a := ask(t, newConsole(t, ""), m, http.MethodGet, "/fleet", nil)
	if a.Code != http.StatusOK || strings.Contains(a.Body, "/minion") || strings.Contains(a.Body, "/job?") ||
		strings.Contains(a.Body, "/keys") || strings.Contains(a.Body, "/run") {
		t.Errorf("%d\n%s", a.Code, a.Body)
	}
	if strings.Join(m.asked, ", ") != "runner fleet.trend" {
		t.Errorf("asked %q", m.asked)
	}

	m.may = func(_, fun string) bool { return fun != "fleet.trend" }
	delete(m.answers, "fleet.trend")
	if a := ask(t, newConsole(t, ""), m, http.MethodGet, "/fleet", nil); a.Code != http.StatusUnauthorized || strings.Contains(a.Body, `/fleet"`) {
		t.Errorf("without the right: %d\n%s", a.Code, a.Body)
	}
}

// TestBarShowsSmallParts: a part that is small beside the others can be seen, and the parts fill the bar.
func TestBarShowsSmallParts(t *testing.T) {
	parts := []barPart{{N: 100_000}, {N: 1}, {N: 1}, {N: 3}}
	placeBar(parts)
	at := 0
	for i, p := range parts {
		if p.At != at || p.Run < 5 {
			t.Errorf("part %d: %+v, want at %d", i, p, at)
		}
		at += p.Run
	}
	if at != barWide {
		t.Errorf("they end at %d", at)
	}
}
