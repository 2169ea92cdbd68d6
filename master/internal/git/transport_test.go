package git

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"saltern/test/check"
	"saltern/test/gitrepo"
)

// smart serves repositories by git's own http-backend, to a user with a password.
func smart(dir string) http.Handler {
	path, _ := exec.LookPath("git")
	backend := &cgi.Handler{
		Path: path,
		Args: []string{"http-backend"},
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_CONFIG_GLOBAL=/dev/null"},
		Logger: nil,
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != "anna" || p != "TOP SECRET:%'\"$(id)" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	})
}

// https with certificates, users and passwords.
func TestHTTPS(t *testing.T) {
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "f", "one")
	server := httptest.NewTLSServer(smart(dir))
	defer server.Close()

	server.Config.ErrorLog = nil
	home := t.TempDir()
	t.Setenv("HOME", home)
	ca := filepath.Join(home, "ca.pem")
	check.Must(t,
		os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	const secret = "TOP SECRET:%'\"$(id)"
	trust := func(on bool) {
		text := ""
		if on {
			text = "[http]\n sslCAInfo = " + ca + "\n"
		}
		check.Must(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(text), 0o600))
	}

	with := strings.Replace(server.URL, "https://", "https://"+url.UserPassword("anna", secret).String()+"@", 1) + "/a"
	for _, c := range []struct {
		name   string
		remote Remote
		trust  bool
		want   Kind
	}{
		{"no password", Remote{URL: server.URL + "/a"}, true, Authentication},
		{"a wrong one", Remote{URL: server.URL + "/a", User: "anna", Password: "x"}, true, Authentication},
		{"a right one", Remote{URL: server.URL + "/a", User: "anna", Password: secret}, true, ""},
		{"one in the URL", Remote{URL: with}, true, ""},
		{"a certificate that is not trusted", Remote{URL: with}, false, HostKey},
		{"any certificate", Remote{URL: with, SkipVerify: true}, false, ""},
		{"no such repository", Remote{URL: with + "x"}, true, Unreachable},
		{"a proxy that is not there", Remote{URL: with, Proxy: "http://127.0.0.1:1"}, true, Unreachable},
	} {
		trust(c.trust)
		r := add(t, open(t, t.TempDir(), Limits{}), c.remote)
		_, err := r.Fetch(t.Context())
		if KindOf(err) != c.want || err != nil && (c.want == "" || strings.Contains(err.Error(), "SECRET")) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}

		if err == nil && text(t, r, r.Snapshot(), "master", "f") != "one" {
			t.Errorf("%s: the file is not there", c.name)
		}
	}
}

// TestAttack35Redirect: a server that sends git elsewhere does not send the password
// there.
func TestAttack35Redirect(t *testing.T) {
	var told atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			told.Store(true)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		http.Error(w, "no", http.StatusUnauthorized)
	}))
	defer other.Close()

	var asked atomic.Bool
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(true)
		http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+r.URL.RequestURI(),
			http.StatusFound)
	}))
	defer first.Close()

	t.Setenv("HOME", t.TempDir())
	r := add(t, open(t, t.TempDir(), Limits{}),
		Remote{URL: first.URL + "/a", User: "anna", Password: "SECRET", InsecureAuth: true})
	if _, err := r.Fetch(t.Context()); KindOf(err) != Authentication {
		t.Errorf("a redirect: %v", err)
	}

	if !asked.Load() || told.Load() {
		t.Errorf("the first was asked: %v, the other was told the password: %v", asked.Load(), told.Load())
	}
}

// sshServer serves repositories by ssh to one key.
func sshServer(t *testing.T, dir string, may ssh.PublicKey) (address string, host ssh.PublicKey) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	check.Must(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	check.Must(t, err)
	conf := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if string(k.Marshal()) != string(may.Marshal()) {
			return nil, fmt.Errorf("no")
		}
		return nil, nil
	}}

	conf.AddHostKey(signer)
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	check.Must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}

			go func() {
				defer c.Close()
				_, chans, reqs, err := ssh.NewServerConn(c, conf)
				if err != nil {
					return
				}

				go ssh.DiscardRequests(reqs)
				for ch := range chans {
					session(ch, dir)
				}
			}()
		}
	}()

	return ln.Addr().String(), signer.PublicKey()
}

func session(ch ssh.NewChannel, dir string) {
	c, reqs, err := ch.Accept()
	if err != nil {
		return
	}

	for r := range reqs {
		var exe struct{ Command string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &exe) != nil {
			_ = r.Reply(r.Type == "env", nil)
			continue
		}

		_ = r.Reply(true, nil)
		go func() {
			defer c.Close()
			name := strings.Trim(strings.TrimPrefix(exe.Command, "git-upload-pack "), "'/")
			cmd := exec.Command("git", "upload-pack", filepath.Join(dir, name))
			in, err := cmd.StdinPipe()
			if err != nil {
				return
			}

			cmd.Stdout, cmd.Stderr = c, c.Stderr()
			if cmd.Start() != nil {
				return
			}

			go func() { _, _ = io.Copy(in, c); _ = in.Close() }()
			status := struct{ Status uint32 }{}
			if cmd.Wait() != nil {
				status.Status = 128
			}

			_, _ = c.SendRequest("exit-status", false, ssh.Marshal(&status))
		}()
	}
}

// ssh with keys, passphrases and known hosts.
func TestSSH(t *testing.T) {
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("SKIPPED: ssh is not installed")
	}

	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "f", "one")
	_, private, err := ed25519.GenerateKey(rand.Reader)
	check.Must(t, err)
	public, err := ssh.NewPublicKey(private.Public())
	check.Must(t, err)
	write := func(name string, block *pem.Block, err error) string {
		check.Must(t, err)
		path := filepath.Join(dir, name)
		check.Must(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
		return path
	}

	plain, err := ssh.MarshalPrivateKey(private, "")
	open1 := write("it's a key", plain, err)
	sealed, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("SECRET"))
	closed := write("sealed", sealed, err)
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	check.Must(t, err)
	strange, err := ssh.MarshalPrivateKey(stranger, "")
	wrong := write("wrong", strange, err)
	address, host := sshServer(t, dir, public)
	other, _ := sshServer(t, dir, public)
	known := filepath.Join(dir, "known hosts")
	check.Must(t,
		os.WriteFile(known,
			[]byte(knownhosts.Line([]string{knownhosts.Normalize(address), knownhosts.Normalize(other)}, host)+"\n"),
			0o600))

	t.Setenv("SSH_AUTH_SOCK", "")
	for _, c := range []struct {
		name, address, known string
		remote               Remote
		want                 Kind
	}{
		{"a key", address, known, Remote{PrivKey: open1}, ""},
		{"a key with a passphrase", address, known, Remote{PrivKey: closed, Passphrase: "SECRET"}, ""},
		{"a wrong passphrase", address, known, Remote{PrivKey: closed, Passphrase: "SECRET2"}, Authentication},
		{"no passphrase", address, known, Remote{PrivKey: closed}, Authentication},
		{"another key", address, known, Remote{PrivKey: wrong}, Authentication},
		{"no such key", address, known, Remote{PrivKey: "/nonexistent"}, Authentication},
		{"an unknown host", address, "/dev/null", Remote{PrivKey: open1}, HostKey},
		{"another host", other, known, Remote{PrivKey: open1}, HostKey},
		{"no answer", "127.0.0.1:1", known, Remote{PrivKey: open1}, Unreachable},
	} {
		s, err := Open(Config{Dir: t.TempDir(), KnownHosts: c.known})
		check.Must(t, err)
		c.remote.URL = "ssh://git@" + c.address + "/a"
		r := add(t, s, c.remote)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err = r.Fetch(ctx)
		cancel()

		if KindOf(err) != c.want || err != nil && (c.want == "" || strings.Contains(err.Error(), "SECRET")) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}

		s.Close()
	}
}
