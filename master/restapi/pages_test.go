package restapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"saltern/master/conf"
	"saltern/master/restapi/internal/console"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// TestFramesOfARun: the page of a run on the master gets the events of that run alone, and large ones
// without their data.
func TestFramesOfARun(t *testing.T) {
	const run = "20261124155900000001"
	want := &console.Events{Run: run}
	for tag, sent := range map[string]bool{
		"salt/run/" + run + "/args":                         true,
		"salt/run/" + run + "/ret":                          true,
		"salt/wheel/" + run + "/ret":                        true,
		"salt/job/" + run + "/prog/m1_master/0":             true,
		"salt/job/" + run + "/ret/web1":                     false,
		"salt/run/" + run + "0/ret":                         false,
		"salt/run/20261124155900000002/ret":                 false,
		"my/salt/run/" + run + "/ret":                       false,
		"salt/run/" + run:                                   false,
		"salt/job/20261124155900000002/prog/m1_master/0":    false,
		"salt/run/20261124155900000002/" + run + "/ret":     false,
		"salt/run/" + strings.Repeat("9", 20) + "/progress": false,
	} {
		frame := "tag: " + tag + "\ndata: {}\n\n"
		if got := pickFrame(frame, want); (got == frame) != sent || !sent && got != "" {
			t.Errorf("%s: %q", tag, got)
		}
	}

	large := "tag: salt/run/" + run + "/ret\ndata: " + strings.Repeat("x", maxPageEvent) + "\n\n"
	if got := pickFrame(large, want); got == "" || len(got) > 200 {
		t.Errorf("%d bytes", len(got))
	}
}

// loggedIn is a master that knows one log-in and refuses all commands.
type loggedIn struct {
	console.Master
	login console.Login
}

func (l loggedIn) Session(context.Context, string) (console.Login, error) { return l.login, nil }

func (l loggedIn) Do(context.Context, string, *value.Map) (any, error) {
	return nil, &console.Refusal{Code: http.StatusUnauthorized, Text: "no"}
}

// TestTabsByPermissions: by the permissions that external_auth grants, the menu leads to the page Run if
// that page offers the user something, and to Saved if salt-api serves runners.
func TestTabsByPermissions(t *testing.T) {
	all := []string{"local_async", "runner", "runner_async", "wheel"}
	for permissions, tt := range map[string]struct {
		clients    []string
		run, saved bool
	}{
		"[{'@runner': [manage.status]}]":     {all, true, true},
		"[{'@wheel': [config.values]}]":      {all, true, true},
		"['@runner']":                        {all, true, true},
		"['@wheel']":                         {all, true, true},
		"['@jobs']":                          {all, true, true},
		"[{'@runner': [state.orchestrate]}]": {all, true, true},
		"[test.ping]":                        {all, true, true},
		"['.*', '@runner', '@wheel']":        {[]string{"local"}, false, false},
		"[{'@runner': [manage.status]}, {'@wheel': [key.list]}]": {[]string{"runner"}, false, true},
		"[{'@runner': ['presence.minions', 'audit.records']}]":   {all, false, true},
		"[{'@wheel': [key.accept]}]":                             {all, false, true},
		"[]":                                                     {all, false, true},
	} {
		t.Run(permissions, func(t *testing.T) {
			granted, err := saltyaml.Decode([]byte(permissions), "permissions")
			if err != nil {
				t.Fatal(err)
			}
			s := &Server{master: &conf.Master{}, opts: Options{Clients: tt.clients}}
			user := owner{name: "alice", system: "pam", permissions: granted.([]any)}
			login := s.consoleLogin(strings.Repeat("ab", 32), user, time.Now().Add(time.Hour))

			c, err := console.New(console.Config{Log: slog.New(slog.DiscardHandler), Now: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			get := func(path string) console.Answer {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://salt:8000/console"+path, nil)
				return c.Serve(t.Context(), console.Request{HTTP: r, Path: path, Master: loggedIn{login: login}})
			}

			menu := get("/events").Body
			if strings.Contains(menu, `href="/console/run"`) != tt.run || strings.Contains(menu, `href="/console/saved"`) != tt.saved {
				t.Errorf("want Run %v and Saved %v: %s", tt.run, tt.saved, menu)
			}
			if code := get("/run").Code; (code == http.StatusOK) != tt.run {
				t.Errorf("the page Run answers %d", code)
			}
		})
	}
}
