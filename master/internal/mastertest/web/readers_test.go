package web

import (
	"os"
	"slices"
	"strings"
	"testing"

	"saltern/internal/audit"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestRightsOfPillarReaders: whoever may call pillar.readers only gets its answer and no other one, by no client and
// no path of the API, and whoever has no right gets none. The audit record has each call: who, how it ended, and
// which key or ref it asked about. The answer is in no event, and has no value.
func TestRightsOfPillarReaders(t *testing.T) {
	t.Parallel()
	users := "    bob: [test.ping]\n    reader: ['@runner': [pillar.readers]]\n    compare: ['@runner': ['pillar\\.diff']]\n    runner: ['@runner']\n"
	options := strings.Replace(mastertest.APIOptions, "    bob: [test.ping]\n", users, 1)
	dir, err := os.MkdirTemp("", "saltern") // not t.TempDir, because paths of sockets must be short
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := mastertest.ServeAPI(t, mastertest.StartIn(t, dir, options+"saltern_diff_folders: [%DIR%]\n"+
		"rest_cherrypy: {disable_ssl: true, port: 1, host: 127.0.0.1}\n"))
	for _, side := range []string{"pillar", "branch"} {
		a.AddFile(side+"/top.sls", "base: {'*': [x]}\n")
		a.AddFile(side+"/x.sls", "db: {password: M4RK-"+side+"}\n")
	}
	a.AcceptedMinion("min1", "min6").Pillar("grains", value.NewMap("os", "Debian"))
	events := a.Parts.Bus.Subscribe("test", 1000, nil)
	defer events.Close()

	branch := a.Path("branch")
	for _, tt := range []struct {
		user          string
		readers, diff bool
	}{
		{user: "reader", readers: true},
		{user: "compare", diff: true},
		{user: "runner", readers: true, diff: true},
		{user: "vera"},
		{user: "bob"},
	} {
		t.Run(tt.user, func(t *testing.T) {
			token := a.Token(tt.user)
			for name, call := range map[string]struct {
				method, path, body string
				may                bool
				want               string
			}{
				"readers": {"POST", "/", `[{"client": "runner", "fun": "pillar.readers", "arg": ["db:password"]}]`, tt.readers, `"readers": 1`},
				"readers of a file": {"POST", "/run", `[{"client": "runner", "fun": "pillar.readers", "kwarg": {"file": "x"}, "token": "` + token + `"}]`,
					tt.readers, `"readers": 1`},
				"diff":       {"POST", "/", `[{"client": "runner", "fun": "pillar.diff", "kwarg": {"folder": "` + branch + `"}}]`, tt.diff, `"db:password"`},
				"diff path":  {"GET", "/diff/pillars?folder=" + branch, "", tt.diff, `"db:password"`},
				"top.diff":   {"GET", "/diff/states?folder=" + branch, "", tt.user == "runner", ""},
				"the pillar": {"POST", "/", `[{"client": "runner", "fun": "pillar.show_pillar", "arg": ["min1"]}]`, tt.user == "runner", ""},
				"explain":    {"GET", "/fleet/explain?minion=min1&ask=False", "", tt.user == "runner", `"db"`},
			} {
				code, body, _ := a.Do(call.method, call.path, call.body, "X-Auth-Token", token)
				refused := code == 401 || code == 403
				if refused == call.may || call.may && !strings.Contains(body, call.want) {
					t.Errorf("%s: %d %s", name, code, body)
				}
				if !call.may && strings.Contains(body, "min1") {
					t.Errorf("%s: the refusal tells %s", name, body)
				}
				if name != "the pillar" && strings.Contains(body, "M4RK") {
					t.Errorf("%s: it has a value: %s", name, body)
				}
			}
		})
	}

	wanted := []string{
		"reader pillar.readers db:password started",
		"reader pillar.readers x started",
		"reader pillar.diff  refused",
		"compare pillar.diff " + branch + " started",
		"compare pillar.readers  refused",
		"runner pillar.diff " + branch + " started",
		"bob pillar.readers  refused",
		"vera pillar.diff  refused",
	}
	await.That(t, "a record of each call", func() bool {
		page, err := audit.Read(t.Context(), "n1", audit.Query{Action: "runner.call"}, audit.MasterDir(a.Path("cache")))
		check.Must(t, err)
		var found []string
		for _, r := range page.Records {
			if r.From != "127.0.0.1" || r.Proof != audit.Token || !r.Limited {
				t.Errorf("%+v", r)
			}
			found = append(found, strings.Join([]string{r.User, r.Function, r.Object, string(r.Result)}, " "))
		}
		isMissing := func(want string) bool { return !slices.Contains(found, want) }
		return !slices.ContainsFunc(wanted, isMissing)
	})

	for len(events.C) > 0 {
		if e := <-events.C; strings.HasPrefix(e.Tag, "salt/run/") && strings.Contains(value.Repr(e.Data), `'readers': 1`) {
			t.Errorf("event %s has the answer: %s", e.Tag, value.Repr(e.Data))
		}
	}
}
