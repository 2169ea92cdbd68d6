package console

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"saltern/master/value"
)

// theDifference is what pillar.diff answers, with names by strangers.
func theDifference() *value.Map {
	changes := []any{
		value.NewMap("path", "nginx:port", "change", "changed", "secret", false, "from", "80", "to", "8080"),
		value.NewMap("path", says, "change", "added", "secret", false, "to", says),
		value.NewMap("path", "password", "change", "changed", "secret", true, "from", `"(hidden)"`, "to", `"(hidden)"`),
	}
	for range 2 * maxDiffLines {
		changes = append(changes, value.NewMap("path", "x", "change", "removed", "from", "1"))
	}
	groups := []any{value.NewMap("count", int64(200), "minions", []any{"web1", hostile}, "top_added", []any{says}, "top_removed",
		[]any{}, "changes", changes, "changes_not_shown", int64(3))}
	for range 2 * maxDiffGroups {
		groups = append(groups, value.NewMap("count", int64(1), "minions", []any{"web2"}, "changes", []any{}))
	}
	return value.NewMap("code", int64(1), "minions", int64(2000), "compared", int64(1999), "differ", int64(214), "without_grains",
		int64(1), "groups", groups, "not_shown", int64(4), "cannot_be_told",
		[]any{value.NewMap("sls", says, "reason", "calls "+says, "text_is_same", false, "minions", int64(7), "for_example", hostile)},
		"cannot_be_told_not_shown", int64(2), "notes", []any{says})
}

func theBranches() *value.Map {
	return value.NewMap("https://git.example/"+says, value.NewMap("branches", value.NewMap("feature", "0123", says, "4567"),
		"tags", value.NewMap("v1", "89ab")))
}

func theReports() any {
	return []any{value.NewMap("remote", says,
		"waiting", []any{value.NewMap("branch", says, "commit", strings.Repeat("a", 40), "since", "2026-11-24T15:00:00Z")},
		"reported", []any{value.NewMap("branch", "feature", "commit", strings.Repeat("b", 40), "state", "failure", "description", says)})}
}

func TestDiffPage(t *testing.T) {
	for name, test := range map[string]struct {
		answer any
		form   url.Values
		code   int
		has    []string
	}{
		"differences": {theDifference(), url.Values{"ref": {"feature"}, "kind": {"pillars"}}, http.StatusOK, []string{
			"214 of 1999 minions differ", "~ nginx:port: 80 → 8080", "~ password: &#34;(hidden)&#34; changes", "and 198 more",
			"207 more changes", "51 more groups", "4 more minions", "1 minions were not compared"}},
		"none": {value.NewMap("code", int64(0), "compared", int64(3), "differ", int64(0), "groups", []any{}),
			url.Values{"ref": {"feature"}, "from": {"v1"}}, http.StatusOK, []string{"Nothing differs on 3 minions"}},
		"no such branch": {value.NewMap("text", "no git remote has it "+says, "code", int64(2)), url.Values{"ref": {"x"}},
			http.StatusBadRequest, []string{"no git remote has it"}},
		"busy": {"Exception occurred in runner pillar.diff: another comparison is running", url.Values{"ref": {"x"}},
			http.StatusBadRequest, []string{"another comparison is running"}},
		"nothing": {theDifference(), url.Values{}, http.StatusBadRequest, []string{"Name the branch"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newConsole(t, "")
			m := &recorded{answers: map[string]any{pillarDiff: test.answer, topDiff: test.answer, gitBranches: theBranches(), gitReports: theReports()}}
			test.form.Set("form", formToken(m.login().Token))
			a := ask(t, c, m, http.MethodPost, "/diff", test.form)
			if a.Code != test.code {
				t.Fatalf("%d: %s", a.Code, a.Body)
			}
			for _, part := range test.has {
				if !strings.Contains(a.Body, part) {
					t.Errorf("the page lacks %q", part)
				}
			}
			if strings.Contains(a.Body, "<b ") || strings.Contains(a.Body, "\u202e") || len(a.Body) > 300<<10 {
				t.Errorf("what strangers wrote is not text, or too long: %d bytes", len(a.Body))
			}
		})
	}
}

// TestDiffPageCompares: the page asks what the form says, and a link compares nothing.
func TestDiffPageCompares(t *testing.T) {
	c := newConsole(t, "")
	m := &recorded{answers: map[string]any{pillarDiff: theDifference(), topDiff: theDifference(), gitBranches: theBranches()}}
	a := ask(t, c, m, http.MethodGet, "/diff?ref=feature&remote=pillar&into=main", nil)
	if a.Code != http.StatusOK || !strings.Contains(a.Body, `value="feature"`) || strings.Contains(strings.Join(m.asked, " "), "diff") {
		t.Errorf("a link asked for %v", m.asked)
	}

	m.lows = nil
	form := url.Values{"ref": {" feature "}, "kind": {"states"}, "tgt": {"web1, web2"}, "type": {"list"}, "into": {"main"},
		"form": {formToken(m.login().Token)}}
	ask(t, c, m, http.MethodPost, "/diff", form)
	for _, low := range m.lows {
		if low.Str("fun") != topDiff {
			continue
		}
		named := low.Map("kwarg")
		if named.Str("ref") != "feature" || len(named.List("tgt")) != 2 || named.Str("tgt_type") != "list" || named.Str("into") != "main" || named.Len() != 4 {
			t.Errorf("asked %v", named)
		}
		return
	}
	t.Error("nothing was compared")
}

// TestReportedLink: the link of a reported commit asks for the comparison that was reported.
func TestReportedLink(t *testing.T) {
	c := newConsole(t, "")
	commit := strings.Repeat("c", 40)
	reports := []any{value.NewMap("remote", "pillar", "url", "https://git.example/ops/pillar.git?a&b", "into", "release/1",
		"reported", []any{value.NewMap("branch", "feature", "commit", commit, "state", "success")})}
	m := &recorded{answers: map[string]any{pillarDiff: theDifference(), gitReports: reports}}
	page := ask(t, c, m, http.MethodGet, "/diff", nil).Body
	_, rest, _ := strings.Cut(page, `<a href="`+c.base+`/diff?`)
	text, _, _ := strings.Cut(rest, `"`)
	query, err := url.ParseQuery(html.UnescapeString(text))
	if err != nil {
		t.Fatal(err)
	}
	want := url.Values{"ref": {commit}, "remote": {"https://git.example/ops/pillar.git?a&b"}, "into": {"release/1"}}
	if query.Encode() != want.Encode() {
		t.Errorf("the link asks for %v", query)
	}
}

// TestDiffPageRights: who may compare nothing gets no page, and who may not list branches types them.
func TestDiffPageRights(t *testing.T) {
	c := newConsole(t, "")
	m := &recorded{answers: map[string]any{gitBranches: theBranches()}, may: func(_, fun string) bool { return fun == gitBranches }}
	if a := ask(t, c, m, http.MethodGet, "/diff", nil); a.Code != http.StatusUnauthorized || len(m.asked) > 0 {
		t.Errorf("%d, asked %v", a.Code, m.asked)
	}

	m = &recorded{answers: map[string]any{topDiff: theDifference()}, may: func(_, fun string) bool { return fun == topDiff }}
	a := ask(t, c, m, http.MethodPost, "/diff", url.Values{"ref": {"x"}, "kind": {"pillars"}, "form": {formToken(m.login().Token)}})
	if a.Code != http.StatusOK || len(m.asked) != 1 || m.asked[0] != "runner top.diff" {
		t.Errorf("%d, asked %v", a.Code, m.asked)
	}
	if a := ask(t, c, m, http.MethodPost, "/diff", url.Values{"ref": {"x"}}); a.Code == http.StatusOK || len(m.asked) != 1 {
		t.Errorf("a form of another site: %d", a.Code)
	}
}
