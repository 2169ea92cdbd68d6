package restapi

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestMinionConf: everybody can read the lines for minions if the appliance has written them, and
// no other file (m6).
func TestMinionConf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "minion.conf")
	ask := func(s *Server, method, url string) *httptest.ResponseRecorder {
		t.Helper()
		w := httptest.NewRecorder()
		q := &request{w: w, http: httptest.NewRequest(method, url, nil)}
		if err := s.routeRequest(q); err != nil {
			s.sendError(q, err)
		}
		return w
	}

	with := bare(t)
	with.opts.MinionConf = path
	if w := ask(with, http.MethodGet, "/minion.conf"); w.Code != http.StatusNotFound {
		t.Errorf("before the set-up knows them: %d %s", w.Code, w.Body)
	}

	if err := os.WriteFile(path, []byte("master: 10.0.0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if w := ask(with, http.MethodGet, "/minion.conf"); w.Code != http.StatusOK ||
		w.Body.String() != "master: 10.0.0.1\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}

	if w := ask(with, http.MethodPost, "/minion.conf"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}

	for _, url := range []string{"/minion.conf/", "/minion.conf/../ready", "/Minion.conf"} {
		if w := ask(with, http.MethodGet, url); w.Code == http.StatusOK {
			t.Errorf("%s: %d %q", url, w.Code, w.Body)
		}
	}

	if w := ask(bare(t), http.MethodGet, "/minion.conf"); w.Code == http.StatusOK {
		t.Errorf("without the appliance: %d %q", w.Code, w.Body)
	}
}
