package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExitStatus: what is wrong is named, and said by the status.
func TestExitStatus(t *testing.T) {
	const good = "rest_cherrypy: {port: 8000, disable_ssl: true}\nnetapi_enable_clients: [local]\n"
	for _, c := range []struct {
		conf, args string
		code       int
		out, err   string
	}{
		{good, "--check", exitOK, "is right\nit is served on http://0.0.0.0:8000/\n", ""},
		{"rest_cherrypy: {port: 8000, host: 192.0.2.1, root_prefix: /api, disable_ssl: true, console: true}\n",
			"--check", exitOK, "its console is at http://192.0.2.1:8000/api/console/\n", ""},
		{"rest_cherrypy: {port: 8000, ssl_crt: /nothing/crt, ssl_key: /nothing/key}\n", "--check",
			exitConfig, "", "/nothing/crt"},
		{good, "--version", exitOK, "salt-api ", ""},
		{good, "--help", exitOK, "Usage: salt-api", ""},
		{good, "-d", exitUsage, "", "foreground"},
		{good, "more", exitUsage, "", `unexpected argument "more"`},
		{good, "--check -l loud", exitConfig, "", "loud"},
		{"", "--check", exitConfig, "", "no section rest_cherrypy"},
		{"rest_cherrypy: {host: a}\n", "", exitConfig, "", "port is not there"},
		{"rest_cherrypy: [\n", "--check", exitConfig, "", "the configuration cannot be used"},
		{"rest_cherrypy: {port: 8000, ssl_crt: /nothing/crt, ssl_key: /nothing/key}\napi_logfile: ''\n", "",
			exitFailure, "", "/nothing/crt"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "master"), []byte(c.conf), 0o600); err != nil {
			t.Fatal(err)
		}

		var out, errs strings.Builder
		code := run(t.Context(), append([]string{"-c", dir}, strings.Fields(c.args)...), &out, &errs)
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.err) {
			t.Errorf("%q %s: %d\n%s%s", c.conf, c.args, code, &out, &errs)
		}
	}
}
