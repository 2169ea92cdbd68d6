package gitrepo

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/address"
	"saltern/test/await"
)

// site is a server of nginx with TLS and basic authentication before git's http-backend,
// as git-http-backend(1) shows for other servers.
const site = `
server {
  listen %[1]s ssl;
  ssl_certificate %[2]s/cert.pem;
  ssl_certificate_key %[2]s/key.pem;
  client_max_body_size 0;
  auth_basic git;
  auth_basic_user_file users;
  location / {
    fastcgi_pass unix:%[3]s/cgi;
    fastcgi_param SCRIPT_FILENAME %[4]s/git-http-backend;
    fastcgi_param GIT_PROJECT_ROOT %[5]s;
    fastcgi_param GIT_HTTP_EXPORT_ALL 1;
    fastcgi_param GIT_CONFIG_NOSYSTEM 1;
    fastcgi_param GIT_CONFIG_GLOBAL /dev/null;
    fastcgi_param PATH_INFO $uri;
    fastcgi_param QUERY_STRING $query_string;
    fastcgi_param REQUEST_METHOD $request_method;
    fastcgi_param CONTENT_TYPE $content_type;
    fastcgi_param CONTENT_LENGTH $content_length;
    fastcgi_param REMOTE_USER $remote_user;
    fastcgi_param REMOTE_ADDR $remote_addr;
  }
}
`

// NGINX serves the repositories below a directory to one user, with Debian's nginx and
// fcgiwrap: a server for each folder with cert.pem and key.pem, which is trusted or
// not. It gives the beginnings of their URLs. The test is skipped without the programs.
func NGINX(t testing.TB, dir, user, password string, certs ...string) (urls []string) {
	t.Helper()
	for _, p := range []string{"nginx", "fcgiwrap"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip("SKIPPED: " + p + " is not installed (apt-get install nginx-light fcgiwrap)")
		}
	}

	own, err := os.MkdirTemp("", "nginx") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(own) })
	conf := "daemon off;\nworker_processes 1;\npid " + own +
		"/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"
	if os.Getuid() == 0 {
		conf = "user root;\n" + conf // who may use the socket
	}

	for _, temp := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		conf += temp + "_temp_path " + own + "/" + temp + ";\n"
	}

	exec := run(t, "/", "git", "--exec-path")
	for _, c := range certs {
		at := address.Free(t, "127.0.0.1").String()
		conf += fmt.Sprintf(site, at, c, own, exec, dir)
		urls = append(urls, "https://"+at+"/")
	}

	sum := sha1.Sum([]byte(password))
	for name, text := range map[string]string{
		"nginx.conf": conf + "}\n",
		"users":      user + ":{SHA}" + base64.StdEncoding.EncodeToString(sum[:]) + "\n",
	} {
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	process(t, "fcgiwrap", "-c", "2", "-s", "unix:"+own+"/cgi")
	process(t, "nginx", "-e", "stderr", "-p", own, "-c", own+"/nginx.conf")
	await.That(t, "nginx and fcgiwrap listen", func() bool {
		return dials("unix", own+"/cgi") &&
			dials("tcp4", strings.Trim(strings.TrimPrefix(urls[len(urls)-1], "https:"), "/"))
	})

	return urls
}

// process runs a program until the test ends, and shows what it said if it failed.
func process(t testing.TB, argv ...string) {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = time.Second // children of it keep the pipe
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said: %s", argv[0], &said)
		}
	})
}

func dials(network, address string) bool {
	c, err := net.DialTimeout(network, address, time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}
