package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"saltern/cmd/internal/daemon"
	"saltern/test/await"
)

// TestExitStatus: what is wrong is named, and said by the status.
func TestExitStatus(t *testing.T) {
	const good = "rest_cherrypy: {port: 8000, disable_ssl: true}\nnetapi_enable_clients: [local]\n"
	for _, c := range []struct {
		conf, args string
		code       int
		out, err   string
	}{
		{good, "--check", daemon.ExitOK, "is right\nit is served on http://0.0.0.0:8000/\n", ""},
		{"rest_cherrypy: {port: 8000, host: 192.0.2.1, root_prefix: /api, disable_ssl: true, console: true}\n",
			"--check", daemon.ExitOK, "its console is at http://192.0.2.1:8000/api/console/\n", ""},
		{"rest_cherrypy: {port: 8000, ssl_crt: /nothing/crt, ssl_key: /nothing/key}\n", "--check",
			daemon.ExitConfig, "", "/nothing/crt"},
		{good, "--version", daemon.ExitOK, "salt-api ", ""},
		{good, "--help", daemon.ExitOK, "Usage: salt-api", ""},
		{good, "-d", daemon.ExitUsage, "", "foreground"},
		{good, "more", daemon.ExitUsage, "", `unexpected argument "more"`},
		{good, "--check -l loud", daemon.ExitConfig, "", "loud"},
		{"", "--check", daemon.ExitConfig, "", "no section rest_cherrypy"},
		{"rest_cherrypy: {host: a}\n", "", daemon.ExitConfig, "", "port is not there"},
		{"rest_cherrypy: [\n", "--check", daemon.ExitConfig, "", "the configuration cannot be used"},
		{"rest_cherrypy: {port: 8000, ssl_crt: /nothing/crt, ssl_key: /nothing/key}\napi_logfile: ''\n", "",
			daemon.ExitFailure, "", "/nothing/crt"},
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

// TestHangupOpensLogOnly: SIGHUP opens the log again, and salt-api goes on until it is told to end.
func TestHangupOpensLogOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "api.log")
	text := "rest_cherrypy: {port: " + freePort(t) + ", host: 127.0.0.1, disable_ssl: true}\nnetapi_enable_clients: [local]\n"
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan int, 1)
	go func() {
		args := []string{
			"-c", dir,
			"--log-file", path,
			"--log-file-level", "info",
			"--pid-file", filepath.Join(dir, "pid"),
		}
		ended <- run(ctx, args, io.Discard, io.Discard)
	}()

	logged := func(text string) func() bool {
		return func() bool {
			b, err := os.ReadFile(path)
			return err == nil && strings.Contains(string(b), text)
		}
	}
	await.That(t, "salt-api is ready", logged("salt-api is ready"))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}

	await.That(t, "the log file is there again", logged(""))
	select {
	case code := <-ended:
		t.Fatalf("salt-api ended with status %d", code)
	default:
	}

	stop()
	if code := <-ended; code != daemon.ExitOK {
		t.Errorf("exit status %d", code)
	}
	if !logged("salt-api has stopped")() {
		t.Error("the new file does not have what was logged after the hangup")
	}
}

// freePort returns a port of the loopback address that nothing listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
