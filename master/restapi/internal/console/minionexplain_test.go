package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"saltern/master/value"
)

// theExplanation is the answer of fleet.explain for a minion that does not answer.
func theExplanation() *value.Map {
	line := func(target, kind, why string, sls ...string) any {
		return value.NewMap("top", "base", "env", "base "+says, "target", target, "type", kind, "sls", value.List(sls), "why", why)
	}
	return value.NewMap("minion", hostile, "node", "n1 "+says, "answers", false,
		"causes", []any{
			value.NewMap("code", "deaf", "text", "it is connected to n2, was sent a question, and nothing came back within 6s", "next",
				"restart salt-minion there; if it comes back, look at its log, its load and its disk"),
			value.NewMap("code", says, "text", says, "next", says),
		},
		"key", value.NewMap("state", "accepted", "fingerprint", "cc:dd", "denied", "11:22", "by", "anna (pam) "+says, "since",
			"2026-11-24T15:00:00Z", "near", []any{says, int64(7)}),
		"connection", value.NewMap("connected", true, "node", "n2"+says, "version", says, "unasked", value.NewMap("n3", says, says, nil)),
		"running", []any{value.NewMap("jid", says, "function", says), nil},
		"unanswered", []any{value.NewMap("jid", "20261124155900000001", "function", "state.apply")},
		"nodegroups", []any{"web", says}, "silences", []any{says},
		"states", value.NewMap("matches", []any{line("web*", "compound", "", "web", says)}, "others", []any{line("os:"+says, "grain", says, "db")},
			"more", int64(12), "note", says),
		"pillar", value.NewMap("problem", says),
	)
}

// TestExplanation: the page of a minion explains it for whoever may know, when he asks, and does not refresh.
func TestExplanation(t *testing.T) {
	at := "/minion?id=web1"
	only := func(funs ...string) func(string, string) bool {
		return func(_, fun string) bool { return strings.Contains(strings.Join(funs, " "), fun) }
	}
	long := theExplanation()
	lines, text := []any{}, strings.Repeat(says, 5000)
	for range 5000 {
		lines = append(lines, value.NewMap("target", text, "why", text))
	}
	long.Set("states", value.NewMap("matches", lines, "others", lines, "more", int64(-5)))
	long.Set("causes", lines)

	for name, c := range map[string]struct {
		path   string
		may    func(string, string) bool
		answer any
		code   int
		has    []string
		lacks  []string
		asked  bool
	}{
		"not asked for":        {at, nil, theExplanation(), 200, []string{"Explain it", `data-stream="/`}, []string{"saltutil", "deaf"}, false},
		"asked for":            {at + "&explain=1", nil, theExplanation(), 200, []string{"Why it does not answer", "deaf", `data-stream=""`}, nil, true},
		"no right":             {at + "&explain=1", only("presence.minions"), theExplanation(), 200, nil, []string{"Explain", "deaf"}, false},
		"the master refuses":   {at + "&explain=1", nil, nil, 200, []string{"web1"}, []string{"deaf"}, true},
		"the master fails":     {at + "&explain=1", nil, "Exception occurred in runner fleet.explain: Error: " + says, 200, []string{"No explanation"}, nil, true},
		"the master says True": {at + "&explain=1", nil, true, 200, []string{"The master does not explain it."}, nil, true},
		"nonsense":             {at + "&explain=1", nil, value.NewMap("causes", says, "states", says), 200, []string{"The master does not explain it."}, nil, true},
		"nonsense below":       {at + "&explain=1", nil, value.NewMap("causes", []any{nil, says, []any{}}, "states", value.NewMap("matches", []any{nil, 7})), 200, nil, nil, true},
		"long":                 {at + "&explain=1", nil, long, 200, []string{"9950 more lines"}, nil, true},
		"no such minion":       {"/minion?id=wbe1&explain=1", nil, theExplanation(), 200, []string{"Why it does not answer"}, []string{`id="live"`}, true},
		"unknown, not asked":   {"/minion?id=wbe1", nil, theExplanation(), 404, nil, nil, false},
		"unknown, no right":    {"/minion?id=wbe1&explain=1", only("presence.minions"), theExplanation(), 404, nil, nil, false},
		"hostile id":           {"/minion?explain=1&id=" + url.QueryEscape("../"+says), nil, theExplanation(), 400, nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &recorded{answers: theAnswers(), may: c.may}
			m.answers[explainRunner] = c.answer
			if c.answer == nil {
				delete(m.answers, explainRunner)
			}
			a := ask(t, newConsole(t, ""), m, http.MethodGet, c.path, nil)
			if a.Code != c.code || len(a.Body) > 200_000 {
				t.Errorf("%d, %d bytes", a.Code, len(a.Body))
			}
			for _, want := range c.has {
				if !strings.Contains(a.Body, want) {
					t.Errorf("the page lacks %q", want)
				}
			}
			for _, unwanted := range append(c.lacks, "<b ", "\u202e") {
				if strings.Contains(a.Body, unwanted) {
					t.Errorf("%q is on the page", unwanted)
				}
			}
			if got := strings.Contains(strings.Join(m.asked, " "), explainRunner); got != c.asked {
				t.Errorf("asked: %t", got)
			}
		})
	}
}
