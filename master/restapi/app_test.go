package restapi

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAppIsForPages (F5): browsers that request a page get the page of option app. Every other
// request reaches its endpoint, with or without an Accept header.
func TestAppIsForPages(t *testing.T) {
	s := bare(t)
	s.opts.App = filepath.Join(t.TempDir(), "index.html")
	s.opts.AppPath = "/app"
	s.opts.StaticPath = "/static"

	if err := os.WriteFile(s.opts.App, []byte("<p>the app"), 0o600); err != nil {
		t.Fatal(err)
	}

	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, c := range []struct {
		method, path, accept, upgrade string
		app                           bool
	}{
		{"GET", "/", browser, "", true},
		{"HEAD", "/", browser, "", true},
		{"GET", "/minions", browser, "", true},
		{"GET", "/app", "", "", true},
		{"GET", "/app/keys", "*/*", "", true},
		{"GET", "/ws/abcd", "", "websocket", false},
		{"GET", "/ws/abcd", browser, "websocket", false},
		{"GET", "/events", "", "", false},
		{"GET", "/events", "text/event-stream", "", false},
		{"GET", "/stats", "", "", false},
		{"GET", "/stats", "*/*", "", false},
		{"GET", "/stats", "application/json, text/plain, */*", "", false},
		{"GET", "/stats", "text/html;q=0, */*", "", false},
		{"POST", "/hook/x", "", "", false},
		{"POST", "/hook/x", browser, "", false},
		{"POST", "/login", "*/*", "", false},
		{"POST", "/minions", browser, "", false},
		{"OPTIONS", "/minions", browser, "", false},
	} {
		t.Run(c.method+" "+c.path+" "+c.accept, func(t *testing.T) {
			r := httptest.NewRequest(c.method, c.path, nil)
			for k, v := range map[string]string{"Accept": c.accept, "Upgrade": c.upgrade} {
				if v != "" {
					r.Header.Set(k, v)
				}
			}

			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			app := w.Code == 200 && strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") &&
				w.Header().Get("Content-Length") != "0"
			if app = app && (c.method == "HEAD" || strings.Contains(w.Body.String(), "the app")); app != c.app {
				t.Errorf("app %t: %d %s", app, w.Code, w.Body)
			}

			if c.method == "POST" && w.Code == 405 {
				t.Errorf("%s is not taken", c.path)
			}
		})
	}
}
