package restapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/conf"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

func read(t *testing.T, section string) (Options, string, error) {
	t.Helper()
	v, err := saltyaml.Decode([]byte("rest_cherrypy: "+section), "test")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	o, err := Read(&conf.Master{Raw: v.(*value.Map), Path: "/etc/salt/master"},
		slog.New(slog.NewTextHandler(&log, nil)))
	return o, log.String(), err
}

func TestRead(t *testing.T) {
	for section, want := range map[string]string{
		"null":                               "no section rest_cherrypy",
		"{host: x}":                          "port is not there",
		"{port: 8000}":                       "ssl_crt and ssl_key",
		"{port: 0, disable_ssl: true}":       "port must be a number",
		"{port: abc, disable_ssl: true}":     "port must be a number",
		"{port: 1, ssl_crt: a, ssl_key: /b}": "ssl_crt must be a whole path",
		"{port: 1, disable_ssl: true, webhook_url: /a/b}":         "one part of a path",
		"{port: 1, disable_ssl: true, thread_pool: 100000}":       "thread_pool must be",
		"{port: 1, disable_ssl: true, authorized_ips: 3}":         "authorized_ips must be a list",
		"{port: 1, disable_ssl: true, max_request_body_size: -1}": "max_request_body_size must be",
		"{port: 1, disable_ssl: true, console_redirect: true}":    "console_redirect leads to the console, which is off",
	} {
		if _, _, err := read(t, section); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", section, err, want)
		}
	}

	o, log, err := read(t,
		"{port: 8000, disable_ssl: true, root_prefix: api/, enable_sessions: false, socket_queue_size: 5, prot: 1, expire_responses: true}")
	if err != nil || o.Address() != "0.0.0.0:8000" || o.RootPrefix != "/api" || !o.NoSessions ||
		o.Queue != 5 || o.MaxBody != 1<<20 || o.WebhookPath != "hook" {
		t.Errorf("%+v, %v", o, err)
	}

	for _, want := range []string{"option=prot", "option=expire_responses", "netapi_enable_clients is empty",
		"in the clear"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in the log:\n%s", want, log)
		}
	}
}

// TestGiven: the appliance's options apply where the section sets none, and the appliance's
// certificate only if the section sets nothing about TLS.
func TestGiven(t *testing.T) {
	const given = "\nsaltern_api: {host: '::', port: 8000, ssl_crt: /a/c, ssl_key: /a/k}"
	for section, want := range map[string]string{
		"null":                              "https://[::]:8000/ /a/c /a/k",
		"{debug: true}":                     "https://[::]:8000/ /a/c /a/k",
		"{port: 9000, host: 192.0.2.1}":     "https://192.0.2.1:9000/ /a/c /a/k",
		"{disable_ssl: true}":               "http://[::]:8000/",
		"{ssl_crt: /b/c, ssl_key: /b/k}":    "https://[::]:8000/ /b/c /b/k",
		"{ssl_crt: /b/c}":                   "ssl_key are needed",
		"{ssl_key: /b/k, port: 1}":          "ssl_key are needed",
		"[port]":                            "no section rest_cherrypy",
		"{port: x}":                         "port must be a number",
		"{root_prefix: api, port: 9000}":    "https://[::]:9000/api /a/c /a/k",
		"{disable_ssl: false, port: 65535}": "https://[::]:65535/ /a/c /a/k",
	} {
		o, _, err := read(t, section+given)
		got := strings.TrimSpace(o.URL() + " " + o.Cert + " " + o.Key)
		if err != nil {
			got = err.Error()
		}

		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%s: %q, want %q", section, got, want)
		}
	}
}

// TestConsoleOption: the section or the appliance decides where the console is. If only the
// appliance has turned it on, other settings of the administrator take precedence.
func TestConsoleOption(t *testing.T) {
	const given = "\nsaltern_api: {port: 8000, console: true}"
	for section, want := range map[string]string{
		"{disable_ssl: true, port: 1}":                                       "off",
		"{disable_ssl: true, port: 1, console: true}":                        "on",
		"{disable_ssl: true}" + given:                                        "on",
		"{disable_ssl: true, console: false}" + given:                        "off",
		"{disable_ssl: true, enable_sessions: false}" + given:                "off",
		"{disable_ssl: true, app_path: console}" + given:                     "off",
		"{disable_ssl: true, webhook_url: /console}" + given:                 "off",
		"{disable_ssl: true, static_path: /console, console: true}" + given:  "static_path is where it would be",
		"{disable_ssl: true, console: true, enable_sessions: false}" + given: "enable_sessions is off",
		"{disable_ssl: true, console: false, console_redirect: true}":        "which is off",
	} {
		o, _, err := read(t, section)
		got := map[bool]string{true: "on", false: "off"}[o.Console]
		if err != nil {
			got = err.Error()
		}

		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", section, got, want)
		}
	}
}

// TestReachable: prefix, sessions, addresses and sites in the configuration decide which paths
// exist and who may use them.
func TestReachable(t *testing.T) {
	for _, c := range []struct {
		section, method, path, origin string
		code                          int
		allowed                       string // origin that the answer names
	}{
		{"root_prefix: /api", "GET", "/api/", "", 200, ""},
		{"root_prefix: /api", "GET", "/api/login", "", 200, ""},
		{"root_prefix: /api", "GET", "/login", "", 404, ""},
		{"root_prefix: /api", "GET", "/apix", "", 404, ""},
		{"enable_sessions: false", "GET", "/login", "", 404, ""},
		{"enable_sessions: false", "POST", "/login", "", 404, ""},
		{"authorized_ips: [10.0.0.1]", "GET", "/", "", 403, ""},
		{"authorized_ips: [192.0.2.1]", "GET", "/", "", 200, ""},
		{"cors_origin: [https://a]", "GET", "/", "https://a", 200, "https://a"},
		{"cors_origin: [https://a]", "GET", "/", "https://b", 200, ""},
		{"debug: true", "GET", "/", "https://b", 200, ""},
		{"debug: true", "GET", "/", "http://example.com", 200, "http://example.com"}, // the host that is asked
		{"debug: true", "GET", "/", "http://example.com:1", 200, ""},
		{"debug: true", "GET", "/", "null", 200, ""},
		{"cors_origin: '*'", "GET", "/", "https://b", 200, "https://b"},
		{"webhook_url: /in", "POST", "/hook", "", 404, ""},
		{"webhook_url: /in", "POST", "/in", "", 401, ""},
		{"stats_disable_auth: true", "GET", "/stats", "", 200, ""},
		{"debug: true", "GET", "/console/", "", 404, ""},
		{"console: true", "GET", "/console/", "https://a", 303, ""},
		{"console: true", "GET", "/console/login", "", 200, ""},
		{"console: true", "DELETE", "/console/login", "", 405, ""},
		{"console: true", "GET", "/consolex", "", 404, ""},
		{"console: true", "GET", "/", "", 200, ""},
		{"console: true, root_prefix: /api", "GET", "/api/console", "", 303, ""},
		{"console: true, root_prefix: /api", "GET", "/console", "", 404, ""},
		{"console: true, authorized_ips: [10.0.0.1]", "GET", "/console/login", "", 403, ""},
	} {
		o, _, err := read(t, "{port: 1, disable_ssl: true, "+c.section+"}")
		if err != nil {
			t.Fatal(err)
		}

		s, err := New(&conf.Master{Raw: value.NewMap()}, o, slog.New(slog.DiscardHandler), os.Getenv)
		if err != nil {
			t.Fatal(err)
		}

		w, r := httptest.NewRecorder(), httptest.NewRequest(c.method, c.path, nil) // from 192.0.2.1
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}

		s.ServeHTTP(w, r)
		if got := w.Header().Get("Access-Control-Allow-Origin"); w.Code != c.code || got != c.allowed {
			t.Errorf("%+v: %d, %q", c, w.Code, got)
		}

		s.Close()
	}
}

func TestMayLogIn(t *testing.T) {
	for _, c := range []struct {
		acl, user, from string
		want            bool
	}{
		{"null", "a", "1.1.1.1", true},
		{"{users: {a: [1.1.1.1], b: ['*'], '*': [2.2.2.2]}}", "a", "1.1.1.1", true},
		{"{users: {a: [1.1.1.1], b: ['*'], '*': [2.2.2.2]}}", "a", "2.2.2.2", false},
		{"{users: {a: [1.1.1.1], b: ['*'], '*': [2.2.2.2]}}", "b", "3.3.3.3", true},
		{"{users: {a: [1.1.1.1], b: ['*'], '*': [2.2.2.2]}}", "c", "2.2.2.2", true},
		{"{users: {a: [1.1.1.1]}}", "c", "1.1.1.1", false},
		{"{users: {}}", "a", "1.1.1.1", false},
		{"{other: 1}", "a", "1.1.1.1", false},
		// Finding 22 of the second audit: other spellings that a directory treats as the same user.
		{"{users: {a: [1.1.1.1], '*': ['*']}}", "A", "1.1.1.1", true},
		{"{users: {a: [1.1.1.1], '*': ['*']}}", "A", "2.2.2.2", false},
		{"{users: {a: [1.1.1.1], '*': ['*']}}", " a", "2.2.2.2", false},
		{"{users: {straße: [1.1.1.1], '*': ['*']}}", "STRASSE", "2.2.2.2", false},
		{"{users: {a: [1.1.1.1], A: [2.2.2.2]}}", "A", "1.1.1.1", false},
		{"{users: {a: [1.1.1.1], '*': ['*']}}", "b", "2.2.2.2", true},
	} {
		o, _, err := read(t, "{port: 1, disable_ssl: true, api_acl: "+c.acl+"}")
		if err != nil {
			t.Fatal(err)
		}

		s := &Server{opts: o, quiet: slog.New(slog.DiscardHandler)}
		if got := s.mayLogIn(c.user, c.from); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestAttack37OldTLS: salt-api accepts neither TLS older than 1.2 nor HTTP without TLS.
func TestAttack37OldTLS(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	der, err := x509.CreateCertificate(rand.Reader,
		&x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)},
		&x509.Certificate{}, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}

	priv, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	for name, b := range map[string]*pem.Block{
		"crt": {Type: "CERTIFICATE", Bytes: der},
		"key": {Type: "EC PRIVATE KEY", Bytes: priv},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	o, _, err := read(t, "{port: 1, host: 127.0.0.1, ssl_crt: "+dir+"/crt, ssl_key: "+dir+"/key}")
	if err != nil {
		t.Fatal(err)
	}

	o.Port = 0
	s, err := New(&conf.Master{Raw: value.NewMap()}, o, slog.New(slog.DiscardHandler), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	ln, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	})
	defer done.Wait()

	defer cancel()
	for version, want := range map[uint16]bool{
		tls.VersionTLS10: false,
		tls.VersionTLS11: false,
		tls.VersionTLS12: true,
		tls.VersionTLS13: true,
	} {
		c, err := tls.Dial("tcp", ln.Addr().String(),
			&tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
		if (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}

		if err == nil {
			c.Close()
		}
	}

	if res, err := http.Get("http://" + ln.Addr().String() + "/"); err == nil {
		res.Body.Close()
		if res.StatusCode == 200 {
			t.Error("HTTP without TLS is answered")
		}
	}
}

// TestPermissionsOfOddNames: a log-in shows a user no permissions of a group, whatever the user's
// name is (finding 20 of the second audit), and otherwise the same permissions as Salt.
func TestPermissionsOfOddNames(t *testing.T) {
	section := value.NewMap("admins%", []any{".*", "@runner"}, "ann", []any{"test.ping"}, "*", []any{"sys.doc"})
	s := &Server{master: &conf.Master{}}
	s.master.ExternalAuth = value.NewMap("ldap", section)
	for _, c := range []struct {
		name   string
		groups []any
		want   string
	}{
		{"ann", nil, "['sys.doc', 'test.ping']"}, {"ann", []any{"admins"}, "['.*', '@runner', 'sys.doc', 'test.ping']"}, {"bob", nil, "['sys.doc']"},
		{"admins%", nil, "['sys.doc']"}, {"admins", nil, "['sys.doc']"}, {"*", nil, "['sys.doc']"}, {"bob", []any{"admins%"}, "['sys.doc']"},
	} {
		got := s.permissions(value.NewMap("eauth", "ldap", "name", c.name, "groups", c.groups))
		if value.Repr(got) != c.want {
			t.Errorf("%s in %v: %s, want %s", c.name, c.groups, value.Repr(got), c.want)
		}
	}
}

// TestPagesOfOtherSites: a page of another site, also of a sibling host, cannot make the browser of
// a logged-in user do anything, with any kind of request. (The second audit's finding 21.)
func TestPagesOfOtherSites(t *testing.T) {
	const refused = http.StatusForbidden
	cookie := []string{"Cookie", "session_id=" + strings.Repeat("ab", 32)}
	header := []string{"X-Auth-Token", strings.Repeat("ab", 32)}
	sibling := []string{"Origin", "https://wiki.example.com"}
	with := func(parts ...[]string) []string { return slices.Concat(parts...) }
	for name, c := range map[string]struct {
		section, method, path string
		header                []string
		refused               bool
	}{
		"text/plain":   {"", "POST", "/", with(cookie, sibling, []string{"Content-Type", "text/plain"}), true},
		"sandboxed":    {"", "POST", "/", with(cookie, []string{"Origin", "null"}), true},
		"another port": {"", "POST", "/", with(cookie, []string{"Origin", "https://example.com:444"}), true},
		"longer name": {"", "POST", "/",
			with(cookie, []string{"Origin", "https://example.com.evil.example"}), true},
		"form without Origin": {"", "POST", "/minions", with(cookie, []string{"Sec-Fetch-Site", "same-site"}), true},
		"image": {"", "GET", "/minions",
			with(cookie, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}), true},
		"script that reads": {"", "GET", "/jobs", with(cookie, sibling), true},
		"log-out":           {"", "POST", "/logout", with(cookie, sibling), true},
		"hook":              {"", "POST", "/hook/x", with(cookie, sibling), true},
		"log-in as another": {"", "POST", "/login", sibling, true},
		"not the one named": {"cors_origin: [https://a]", "POST", "/", with(cookie, sibling), true},
		"named":             {"cors_origin: [https://wiki.example.com]", "POST", "/", with(cookie, sibling), false},
		"any":               {"cors_origin: '*'", "POST", "/", with(cookie, sibling), false},
		"own page":          {"", "POST", "/", with(cookie, []string{"Origin", "https://example.com"}), false},
		"behind a proxy": {"", "POST", "/",
			with(cookie, []string{"Origin", "https://salt.example.org", "Sec-Fetch-Site", "same-origin"}),
			false},
		"program":             {"", "POST", "/", cookie, false},
		"token in the header": {"", "POST", "/", with(header, sibling), false},
		"link": {"", "GET", "/jobs",
			with(cookie, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}), false},
		"open hook":            {"webhook_disable_auth: true", "POST", "/hook/x", sibling, false},
		"question of a script": {"", "GET", "/", sibling, false},
	} {
		t.Run(name, func(t *testing.T) {
			o, _, err := read(t, "{port: 1, disable_ssl: true, "+c.section+"}")
			if err != nil {
				t.Fatal(err)
			}

			s, err := New(&conf.Master{Raw: value.NewMap()}, o, slog.New(slog.DiscardHandler), os.Getenv)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()

			w, r := httptest.NewRecorder(), httptest.NewRequest(c.method, c.path, nil)
			for i := 0; i < len(c.header); i += 2 {
				r.Header.Set(c.header[i], c.header[i+1])
			}

			s.ServeHTTP(w, r)
			if (w.Code == refused) != c.refused {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}
