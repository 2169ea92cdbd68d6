package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
)

const secret = "a secret of more than sixteen"

func sign(body string) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(body))
	return hex.EncodeToString(m.Sum(nil))
}

func secretFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "webhook.secret")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// The bodies are cut from those that the servers' manuals show.
const (
	ofGitHub = `{"ref":"refs/heads/main","repository":{"name":"states","html_url":"https://github.com/ops/states","git_url":"git://github.com/ops/states.git","ssh_url":"git@github.com:ops/states.git","clone_url":"https://github.com/ops/states.git"}}`
	ofGitLab = `{"object_kind":"push","project":{"git_ssh_url":"git@gitlab.example.com:ops/states.git","git_http_url":"https://gitlab.example.com/ops/states.git"},"repository":{"name":"states","url":"git@gitlab.example.com:ops/states.git","git_http_url":"https://gitlab.example.com/ops/states.git"}}`
)

// TestAttack36Webhook: what is not proven does nothing, costs little, and is refused
// with the reason; what is proven has the remote fetched.
func TestAttack36Webhook(t *testing.T) {
	good := secretFile(t, secret+"\n", 0o600)
	type heads map[string]string
	for name, c := range map[string]struct {
		method, path, body, secret string
		heads                      heads
		code                       int
		want                       []string
	}{
		"GitHub": {
			body:  ofGitHub,
			heads: heads{"X-Hub-Signature-256": "sha256=" + sign(ofGitHub)},
			code:  202,
			want: []string{"https://github.com/ops/states.git", "git@github.com:ops/states.git",
				"git://github.com/ops/states.git", "https://github.com/ops/states"},
		},
		"Gitea": {
			body:  ofGitHub,
			heads: heads{"X-Gitea-Signature": sign(ofGitHub)},
			code:  202,
			want: []string{"https://github.com/ops/states.git", "git@github.com:ops/states.git",
				"git://github.com/ops/states.git", "https://github.com/ops/states"},
		},
		"GitLab": {
			body:  ofGitLab,
			heads: heads{"X-Gitlab-Token": secret},
			code:  202,
			want: []string{"https://gitlab.example.com/ops/states.git",
				"git@gitlab.example.com:ops/states.git", "https://gitlab.example.com/ops/states.git"},
		},
		"anybody": {
			body:  `{"remote":"states"}`,
			heads: heads{"X-Hub-Signature-256": "sha256=" + sign(`{"remote":"states"}`)},
			code:  202,
			want:  []string{"states"},
		},
		"nothing in it": {
			body:  "",
			heads: heads{"X-Hub-Signature-256": "sha256=" + sign("")},
			code:  202,
			want:  []string{""},
		},
		"no proof": {body: ofGitHub, code: 401},
		"a proof of another body": {
			body:  ofGitHub + " ",
			heads: heads{"X-Hub-Signature-256": "sha256=" + sign(ofGitHub)},
			code:  401,
		},
		"an old proof": {
			body:  ofGitHub,
			heads: heads{"X-Hub-Signature": "sha1=0123456789012345678901234567890123456789"},
			code:  401,
		},
		"half a proof": {
			body:  ofGitHub,
			heads: heads{"X-Hub-Signature-256": "sha256=" + sign(ofGitHub)[:32]},
			code:  401,
		},
		"no hexadecimal": {body: ofGitHub, heads: heads{"X-Hub-Signature-256": "sha256=x"}, code: 401},
		"a wrong token":  {body: ofGitLab, heads: heads{"X-Gitlab-Token": secret[1:]}, code: 401},
		"too much": {
			body:  strings.Repeat("x", maxBody+1),
			heads: heads{"X-Hub-Signature-256": "sha256=" + sign("")},
			code:  413,
		},
		"no JSON": {
			body:  "payload=%7B%7D",
			heads: heads{"X-Hub-Signature-256": "sha256=" + sign("payload=%7B%7D")},
			code:  400,
		},
		"JSON of another shape": {
			body:  "[]",
			heads: heads{"X-Hub-Signature-256": "sha256=" + sign("[]")},
			code:  400,
		},
		"odd fields": {
			body:  oddFields,
			heads: heads{"X-Hub-Signature-256": "sha256=" + sign(oddFields)},
			code:  202,
			want:  []string{"https://example.com/ops/states.git", "git@example.com:ops/states.git"},
		},
		"a GET":          {method: "GET", code: 405},
		"elsewhere":      {path: "/", code: 404},
		"no secret here": {secret: "/nonexistent", heads: heads{"X-Gitlab-Token": ""}, code: 503},
		"a secret for all": {
			secret: secretFile(t, secret, 0o644),
			heads:  heads{"X-Gitlab-Token": secret},
			code:   503,
		},
		"a short secret": {
			secret: secretFile(t, "short", 0o600),
			heads:  heads{"X-Gitlab-Token": "short"},
			code:   503,
		},
		"an empty secret": {
			secret: secretFile(t, "\n", 0o600),
			heads:  heads{"X-Hub-Signature-256": "sha256=" + sign("")},
			code:   503,
		},
	} {
		if c.secret == "" {
			c.secret = good
		}

		h := newHook(Config{Secret: c.secret, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		if c.method == "" {
			c.method = "POST"
		}

		if c.path == "" {
			c.path = "/webhook"
		}

		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		for k, v := range c.heads {
			r.Header.Set(k, v)
		}

		w := httptest.NewRecorder()
		h.handler().ServeHTTP(w, r)
		got := h.pushes.take()
		if name == "JSON of another shape" && !strings.Contains(w.Body.String(), "array and no object") {
			t.Errorf("%s: %s", name, w.Body)
		}
		if w.Code != c.code || !slices.Equal(got, c.want) || strings.Contains(w.Body.String(), secret) {
			t.Errorf("%s: %d %q %q, want %d %q", name, w.Code, w.Body, got, c.code, c.want)
		}
	}
}

// TestAttack36Guesses: a source that guesses is told so, and a right call from there gets in all
// the same; so many sources that nobody can know them take no more memory, nor lines of
// the log.
func TestAttack36Guesses(t *testing.T) {
	now := time.Unix(1e9, 0)
	var lines strings.Builder
	h := newHook(Config{
		Secret: secretFile(t, secret, 0o600),
		Now:    func() time.Time { return now },
		Log:    slog.New(slog.NewTextHandler(&lines, nil)),
	})

	call := func(from, token string) int {
		r := httptest.NewRequest("POST", "/webhook", strings.NewReader(""))
		r.RemoteAddr = from
		r.Header.Set("X-Gitlab-Token", token)
		w := httptest.NewRecorder()
		h.handler().ServeHTTP(w, r)
		return w.Code
	}

	for i := range 20 {
		if got := call("192.0.2.1:1", "guess"); got != 401 {
			t.Fatalf("guess %d: %d", i, got)
		}
	}

	if got := call("192.0.2.1:2", "guess"); got != 429 {
		t.Errorf("after 20 guesses: %d", got)
	}

	if got := call("192.0.2.1:2", secret); got != 202 {
		t.Errorf("the right one, after 20 guesses: %d", got)
	}

	for i := range 3 * maxSources {
		call(fmt.Sprintf("[2001:db8:%x::1]:1", i), "guess")
	}

	if len(h.calls) > maxSources+1 {
		t.Errorf("%d sources are known", len(h.calls))
	}

	if n := strings.Count(lines.String(), "\n"); n > 25 {
		t.Errorf("%d lines in the log", n)
	}
}

// TestPushesThatWait: a repository waits once, and with too many of them all are fetched.
func TestPushesThatWait(t *testing.T) {
	h := newHook(Config{})
	for range 3 {
		h.pushes.add([]string{"a", "b"})
	}

	h.pushes.add([]string{"c"})
	if got := fmt.Sprint(h.pushes.take(), h.pushes.take(), h.pushes.take()); got != "[a b] [c] []" {
		t.Errorf("%s", got)
	}

	for i := range 3 * maxWait {
		h.pushes.add([]string{fmt.Sprint(i)})
	}

	if got := h.pushes.take(); len(got) != 1 || got[0] != "" || h.pushes.take() != nil {
		t.Errorf("too many wait: %q", got)
	}
}

// TestCallsBesideStrangers (second audit, 16): whoever holds connections, or sends bodies that do not
// come, keeps no right call out, from wherever it comes, nor does a right call that was made before
// from where it came then.
func TestCallsBesideStrangers(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	address := ln.Addr().String()
	_ = ln.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Serve(ctx,
			Config{
				Address: address,
				Secret:  secretFile(t, secret, 0o600),
				Now:     time.Now,
				Log:     slog.New(slog.DiscardHandler),
				NotOurs: errors.New("x"),
				Fetch:   func(context.Context, string) error { return nil },
			})
	}()
	defer func() { cancel(); <-ended }()

	from := func(ip string) *net.Dialer { return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}} }
	call := func(ip, body string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/webhook",
			strings.NewReader(body))
		if err != nil {
			return err
		}

		r.Header.Set("X-Hub-Signature-256", "sha256="+sign(body))
		res, err := (&http.Client{
			Transport: &http.Transport{DialContext: from(ip).DialContext, DisableKeepAlives: true},
			Timeout:   10 * time.Second,
		}).Do(r)
		if err != nil {
			return err
		}
		defer res.Body.Close()

		if res.StatusCode != http.StatusAccepted {
			return fmt.Errorf("%s", res.Status)
		}

		return nil
	}

	await.That(t, "a first call", func() bool { return call("127.0.0.2", ofGitHub) == nil })

	const half = "POST /webhook HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: sha256=00\r\nContent-Length: 2000000\r\n\r\n{"
	for name, strangers := range map[string]int{"one": 1, "forty": 40} {
		t.Run(name, func(t *testing.T) {
			var held sync.WaitGroup
			over := make(chan struct{})
			for i := range 80 {
				held.Go(func() {
					for { // as often as it is cut
						c, err := from(fmt.Sprint("127.0.7.", 1+i%strangers)).Dial("tcp4", address)
						if err == nil {
							_, _ = io.WriteString(c, half)
							stop := make(chan struct{})
							go func() {
								select {
								case <-over:
								case <-stop:
								}
								c.Close()
							}()

							_, _ = io.Copy(io.Discard, c)
							close(stop)
						}

						select {
						case <-over:
							return
						default:
						}
					}
				})
			}

			for i := range 12 {
				if err := call("127.0.0.2", ofGitHub); err != nil {
					t.Errorf("call %d of a server that is known: %v", i, err)
				}
			}

			await.That(t, "a call from elsewhere",
				func() bool { return call("127.0.0.3", strings.Repeat(" ", 500_000)+ofGitHub) == nil })
			close(over)
			held.Wait()
		})
	}
}

// oddFields is a push with fields of another type than servers send, and with a password.
const oddFields = `{"remote": 5, "project": "x", "repository": {"html_url": 5, "git_url": null,
	"clone_url": "https://user:hunter2@example.com/ops/states.git", "ssh_url": "git@example.com:ops/states.git"}}`

// TestPasswordInAURL: the log has no user or password of a URL that a caller sends, whatever becomes of the push.
func TestPasswordInAURL(t *testing.T) {
	notOurs := errors.New("not ours")
	for _, answer := range []error{nil, notOurs, errors.New("a node does not answer")} {
		lines := &logged.Buffer{}
		h := newHook(Config{
			NotOurs: notOurs,
			Now:     time.Now,
			Log:     slog.New(slog.NewTextHandler(lines, nil)),
			Fetch:   func(context.Context, string) error { return answer },
		})
		for _, url := range []string{"https://user:hunter2@example.com/x.git", "https://hunter2@example.com/x@y.git", "ssh://a:hunter2@b@example.com/x",
			"https://u:pa/hunter2@example.com/x", "https://[::1]:8443/example.com/x@y"} {
			names, err := namesIn([]byte(`{"remote": "` + url + `"}`))
			check.Must(t, err)
			h.fetchNamed(t.Context(), names)
		}
		if text := lines.String(); strings.Contains(text, "hunter2") || strings.Count(text, "example.com/x") != 5 || !strings.Contains(text, "[::1]") {
			t.Error(text)
		}
	}
}

// The names of a repository are tried until one is configured, and what hangs ends
// with the listener.
func TestFetchOfAPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		notOurs := errors.New("not ours")
		var asked []string
		h := newHook(Config{
			NotOurs: notOurs,
			Now:     time.Now,
			Log:     slog.New(slog.DiscardHandler),
			Fetch: func(ctx context.Context, remote string) error {
				asked = append(asked, remote)
				if remote == "hangs" {
					<-ctx.Done()
					return ctx.Err()
				}
				if remote == "here" {
					return nil
				}

				return fmt.Errorf("%w: %s", notOurs, remote)
			},
		})

		done := make(chan struct{})
		go func() { defer close(done); h.fetchPushes(ctx) }()
		for _, names := range [][]string{{"away", "here", "not asked"}, {"hangs", "not asked"}, {"away"}} {
			h.pushes.add(names)
		}

		time.Sleep(fetchTakes + time.Second) // of the bubble
		synctest.Wait()
		if got := strings.Join(asked, " "); got != "away here hangs away" {
			t.Errorf("asked for %s", got)
		}

		cancel()
		<-done
	})
}

// The listener serves over the network, and ends with its context.
func TestServe(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	address := ln.Addr().String()
	_ = ln.Close()
	ctx, cancel := context.WithCancel(t.Context())
	fetched := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Serve(ctx,
			Config{
				Address: address,
				Secret:  secretFile(t, secret, 0o600),
				Now:     time.Now,
				Log:     slog.New(slog.DiscardHandler),
				NotOurs: errors.New("x"),
				Fetch:   func(_ context.Context, remote string) error { fetched <- remote; return nil },
			})
	}()

	var resp *http.Response
	for end := time.Now().Add(20 * time.Second); ; {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/webhook",
			strings.NewReader(`{"remote":"states"}`))
		if err != nil {
			t.Fatal(err)
		}

		r.Header.Set("X-Gitlab-Token", secret)
		if resp, err = http.DefaultClient.Do(r); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}

	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Errorf("%s %s", resp.Status, text)
	}

	if got := <-fetched; got != "states" {
		t.Errorf("fetched %q", got)
	}

	cancel()
	<-ended
}

func FuzzBody(f *testing.F) {
	for _, s := range []string{ofGitHub, ofGitLab, `{"remote":"x"}`, "", "{}", `{"repository":[]}`,
		`{"remote":"\u001b[2J"}`} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		names, err := namesIn(b)
		if err != nil {
			return
		}

		if len(names) == 0 || len(names) > maxNames {
			t.Errorf("%d names", len(names))
		}

		for _, n := range names {
			if len(n) > 2100 || strings.ContainsAny(n, "\x1b\r\n\x00") {
				t.Errorf("%q", n)
			}
		}
	})
}
