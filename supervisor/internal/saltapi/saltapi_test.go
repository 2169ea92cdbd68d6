package saltapi

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAPILook: what the program says of the configuration is passed on, within bounds.
func TestAPILook(t *testing.T) {
	now := time.Now()
	a := apiNodes(t, &now, "n1")[0]
	a.env.Executable = filepath.Join(t.TempDir(), "applianced")
	for script, want := range map[string]string{
		"echo it is served on http://0.0.0.0:8000/; echo its console is at http://0.0.0.0:8000/console/":    "http://0.0.0.0:8000/ http://0.0.0.0:8000/console/",
		"echo right; echo it is served on https://192.0.2.1:9000/api":                                       "https://192.0.2.1:9000/api",
		"echo it is served on https://192.0.2.1:9000/; echo the load balancers reach it on 192.0.2.1:14507": "https://192.0.2.1:9000/ 192.0.2.1:14507",
		"echo it is served on nowhere":            "does not say where",
		"echo it is served on https://192.0.2.1/": "does not say where",
		"exit 0": "does not say where",
		"echo 'salt-api: the configuration cannot be used:' >&2; echo 'port must be a number' >&2; exit 78": "salt-api: port must be a number",
		"echo boom >&2; exit 1":              "salt-api: boom",
		"yes | head -c 1000000 >&2; exit 78": "salt-api: y",
	} {
		if err := os.WriteFile(a.program(), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}

		u, why := a.runCheck(t.Context(), "/nowhere")
		if u != nil {
			why = strings.TrimSpace(u.String() + " " + u.behind + u.console)
		}

		if !strings.Contains(why, want) || len(why) > 1000 {
			t.Errorf("%s: %.300q", script, why)
		}
	}

	_ = os.Remove(a.program())
	if _, why := a.runCheck(t.Context(), "/nowhere"); !strings.Contains(why, "no such file") {
		t.Errorf("no program: %s", why)
	}
}

// TestAPIAnswers: any answer is one, whoever may ask; none is none.
func TestAPIAnswers(t *testing.T) {
	for _, start := range []func(http.Handler) *httptest.Server{httptest.NewServer, httptest.NewTLSServer} {
		srv := start(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
		srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
		u, err := url.Parse(srv.URL)
		if err != nil {
			t.Fatal(err)
		}

		u.Host = "0.0.0.0:" + u.Port()
		a := &API{}
		a.at.Store(&apiPlace{URL: u})
		if err := a.answers(t.Context()); err != nil {
			t.Error(err)
		}

		srv.Close()
		if err := a.answers(t.Context()); err == nil || !strings.Contains(err.Error(), "127.0.0.1:"+u.Port()) {
			t.Errorf("closed: %v", err)
		}

		if port(u) == 0 || port(&url.URL{Host: "x"}) != 0 {
			t.Errorf("ports: %d", port(u))
		}
	}
}
