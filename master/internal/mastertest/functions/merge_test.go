package functions

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/gitrepo"
)

// TestReportsInTheMerge: a master with a pillar from git sets the status of a new commit, and says so by its
// runners and over HTTP, to whom may call them.
func TestReportsInTheMerge(t *testing.T) {
	var mu sync.Mutex
	states := map[string][]string{} // by the path of the request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status struct{ State, Description string }
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &status)
		mu.Lock()
		defer mu.Unlock()
		states[r.URL.Path] = append(states[r.URL.Path], status.State+" "+status.Description)
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()

	up := gitrepo.New(t, t.TempDir(), "pillar")
	up.Commit("main", "top.sls", "base: {'*': [web]}\n", "web.sls", "port: 80\n")
	up.Branch("old", "main")
	up.Commit("old", "web.sls", "port: 1\n")
	a := mastertest.StartAPIWith(t, fmt.Sprintf(`ext_pillar: [{git: ["main %s": [{env: base}]]}]
git_pillar_update_interval: 1
saltern_merge_reports: [{remote: pillar, form: gitea, url: "%s", project: ops/pillar, token: x, into: main}]
`, up.URL(), server.URL), "")
	a.AcceptedMinion("web1", "min6").Pillar()
	reports := func() *value.Map {
		v, err := a.Parts.Runs.Call(t.Context(), "git.reports", nil, nil)
		list, _ := v.([]any)
		if err != nil || len(list) != 1 {
			t.Fatal(v, err)
		}
		return list[0].(*value.Map)
	}
	await.That(t, "the branches", func() bool {
		v, err := a.Parts.Runs.Call(t.Context(), "git.branches", nil, nil)
		m, _ := v.(*value.Map)
		return err == nil && m.Map(m.Keys()[0]).Map("branches").Len() == 2
	})
	await.That(t, "the first look", func() bool { return reports().Bool("looked") })

	up.Branch("feature", "main")
	commit := up.Commit("feature", "web.sls", "port: 8080\n")
	await.That(t, "the report", func() bool { return len(reports().List("reported")) == 1 })
	mu.Lock()
	got := fmt.Sprint(states)
	mu.Unlock()
	want := "map[/api/v1/repos/ops/pillar/statuses/" + commit + ":[pending comparing with what is served " +
		"success pillars: 1 of 1 differ; states: same on 1]]"
	if got != want {
		t.Errorf("the server got %s\nwant %s", got, want)
	}
	made := reports() // names the comparison
	compared := url.Values{"ref": {commit}, "remote": {made.Str("url")}, "into": {made.Str("into")}}
	if made.Str("url") == "" || made.Str("into") != "main" {
		t.Errorf("got %v", made)
	}

	for _, tt := range []struct {
		path, user, has string
		code            int
	}{
		{"/diff/pillars?ref=feature", "alice", `"to": "8080"`, 200},
		{"/diff/pillars?" + compared.Encode(), "alice", `"to": "8080"`, 200},
		{"/diff/states?ref=feature&tgt=web*", "alice", `"differ": 0`, 200},
		{"/diff/pillars?ref=feature&format=junit", "alice", "testsuite", 200},
		{"/diff/pillars", "alice", "name what to compare", 400},
		{"/diff/pillars?ref=feature&x=1", "alice", "", 404},
		{"/diff/branches", "alice", commit, 200},
		{"/diff/reports", "alice", "1 of 1 differ", 200},
		{"/diff/branches?ref=x", "alice", "no arguments", 400},
		{"/diff/other", "alice", "", 404},
		{"/diff/pillars?ref=feature", "vera", "", 401},
		{"/diff/branches", "bob", "", 401},
	} {
		code, body, _ := a.Do("GET", tt.path, "", "X-Auth-Token", a.Token(tt.user))
		if code != tt.code || !strings.Contains(body, tt.has) {
			t.Errorf("%s %s: %d %s", tt.user, tt.path, code, body)
		}
	}
}
