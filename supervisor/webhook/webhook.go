// Package webhook takes the calls of git servers after a push, and has all nodes
// fetch the repository at once.
//
// A call is a POST of JSON to /webhook, proven by the secret: an HMAC-SHA256 of the
// body (X-Hub-Signature-256 of GitHub, Gitea, Forgejo and Bitbucket Data Center;
// X-Gitea-Signature), or the secret itself (X-Gitlab-Token), as the servers' manuals
// describe them. All that a call can do is to begin a fetch of a remote that is
// configured: one that is sent again does no harm.
package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"saltern/durable"
	"saltern/httpserver"
	"saltern/localsock"
	"saltern/printable"
	"saltern/ratelimit"
)

// Bounds.
const (
	MinSecret = 16      // bytes
	maxSecret = 4 << 10 // bytes of its file
	maxBody   = 2 << 20
	maxConns  = 16
	maxWait   = 16 // pushes that wait for the fetch of another one
	maxNames  = 8  // of one repository
	workers   = 4
	// fetchTakes bounds what is waited for; the masters' fetches go on.
	fetchTakes = 20 * time.Second
)

// Config of a listener.
type Config struct {
	Address string // IP:port
	Secret  string // path of the file with the secret; read for each call
	// Fetch has all nodes fetch the remote of that URL or name, "" for all. The error
	// matches NotOurs if none has it.
	Fetch   func(ctx context.Context, remote string) error
	NotOurs error
	Log     *slog.Logger
	Now     func() time.Time
}

// hook is the handler, and what it has to do.
type hook struct {
	Config
	pushes chan []string // names of a repository, any of which may be configured

	mu    sync.Mutex
	calls map[netip.Addr]*ratelimit.Bucket // of sources whose calls were not proven
}

// strange is how many calls of a source that are not proven are looked at.
func strange() ratelimit.Rate { return ratelimit.Rate{Burst: 20, PerSecond: 1} }

// maxSources bounds the sources that are known. With more, all begin anew.
const maxSources = 1024

// Serve serves until ctx ends. An address that is not free is tried again.
func Serve(ctx context.Context, cfg Config) {
	ln, err := httpserver.Listen(ctx, cfg.Address, "the web hook", cfg.Log)
	if err != nil {
		return
	}
	h := newHook(cfg)
	var worker sync.WaitGroup
	defer worker.Wait()
	for range workers { // a remote that does not answer keeps no other waiting
		worker.Go(func() { h.run(ctx) })
	}
	srv := &http.Server{Handler: h.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 15 * time.Second,
		IdleTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug)}
	if err := httpserver.Serve(ctx, srv, localsock.Limit(ln, maxConns, nil), time.Second); err != nil {
		cfg.Log.Error("the web hook is not served any more", "error", err)
	}
}

func newHook(cfg Config) *hook {
	return &hook{Config: cfg, pushes: make(chan []string, maxWait), calls: map[netip.Addr]*ratelimit.Bucket{}}
}

// run fetches what was pushed, one after the other, until ctx ends.
func (h *hook) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case names := <-h.pushes:
			h.fetch(ctx, names)
		}
	}
}

// fetch tries the names of a repository until one is configured.
func (h *hook) fetch(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeout(ctx, fetchTakes)
	defer cancel()
	for _, name := range names {
		err := h.Fetch(ctx, name)
		if errors.Is(err, h.NotOurs) {
			continue
		}
		if err != nil {
			h.Log.Error("a push was told of, and not all nodes could be asked to fetch", "url", name, "error", err)
		} else {
			h.Log.Info("a push was told of: all nodes fetch", "url", name)
		}
		return
	}
	h.Log.Warn("a push was told of, and no remote of its URL is configured", "url", strings.Join(names, " "))
}

func (h *hook) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /webhook", func(w http.ResponseWriter, r *http.Request) {
		code, text := h.take(w, r)
		if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "10")
		}
		if code != http.StatusAccepted {
			w.Header().Set("Connection", "close") // what is left of the body is not read
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text+"\n") // the caller may have gone
	})
	return mux
}

// take looks at a call.
func (h *hook) take(w http.ResponseWriter, r *http.Request) (code int, text string) {
	peer := ratelimit.SourceOf(r.RemoteAddr)
	if !h.charge(peer, 0) {
		return http.StatusTooManyRequests, "too many calls that were not proven"
	}
	secret, err := h.secret()
	if err != nil {
		h.charge(peer, 1)
		h.Log.Error("a web hook is refused: its secret cannot be used", "path", h.Secret, "error", err)
		return http.StatusServiceUnavailable, "this node has no secret for web hooks; see its log"
	}
	proof := proofOf(r.Header)
	if proof == nil {
		h.charge(peer, 1)
		return http.StatusUnauthorized, "the signature is missing: give the web hook the secret"
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		h.charge(peer, 1)
		return http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", large.Limit)
	}
	if err != nil {
		h.charge(peer, 1)
		return http.StatusBadRequest, "the body cannot be read"
	}
	if !proof(secret, body) {
		h.charge(peer, 1)
		h.Log.Warn("a web hook with a wrong signature was refused", "peer", r.RemoteAddr)
		return http.StatusUnauthorized, "the signature is wrong: the secrets differ"
	}
	names, err := namesIn(body)
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	select {
	case h.pushes <- names:
		return http.StatusAccepted, "all nodes fetch"
	default:
		h.Log.Warn("a web hook is refused: too many wait", "waiting", maxWait)
		return http.StatusServiceUnavailable, "too many calls wait"
	}
}

// charge takes n of what a source may ask without a proof, and reports whether it
// may ask once more.
func (h *hook) charge(from netip.Addr, n float64) bool {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls[from] == nil && len(h.calls) >= maxSources {
		maps.DeleteFunc(h.calls, func(_ netip.Addr, b *ratelimit.Bucket) bool { return b.Used(now, strange()) == 0 })
		if len(h.calls) >= maxSources {
			clear(h.calls) // a guess of so long a secret is worth nothing; others must not wait
		}
	}
	b := h.calls[from]
	if b == nil {
		if n == 0 {
			return true
		}
		b = &ratelimit.Bucket{}
		h.calls[from] = b
	}
	if n > 0 {
		b.Take(now, strange(), n)
	}
	return b.Has(now, strange(), 1)
}

// secret reads the secret. A file that others may read is none.
func (h *hook) secret() ([]byte, error) {
	b, fi, err := durable.ReadFile(h.Secret, maxSecret, durable.Refuse)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("the file is not there: openssl rand -hex 32 makes a secret")
	}
	if err != nil {
		return nil, err
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, errors.New("others may read the file: chmod 600")
	}
	secret := strings.TrimSpace(string(b))
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("it has less than %d characters", MinSecret)
	}
	return []byte(secret), nil
}

// proofOf is the check of what a call gives as its proof; nil: it gives none.
func proofOf(head http.Header) func(secret, body []byte) bool {
	signed := func(given string) func(secret, body []byte) bool {
		return func(secret, body []byte) bool {
			want, err := hex.DecodeString(given)
			m := hmac.New(sha256.New, secret)
			m.Write(body)
			return err == nil && hmac.Equal(want, m.Sum(nil))
		}
	}
	if s, ok := strings.CutPrefix(head.Get("X-Hub-Signature-256"), "sha256="); ok {
		return signed(s)
	}
	if s, ok := strings.CutPrefix(head.Get("X-Hub-Signature"), "sha256="); ok { // Bitbucket
		return signed(s)
	}
	if s := head.Get("X-Gitea-Signature"); s != "" {
		return signed(s)
	}
	if s := head.Get("X-Gitlab-Token"); s != "" {
		return func(secret, _ []byte) bool {
			a, b := sha256.Sum256([]byte(s)), sha256.Sum256(secret)
			return subtle.ConstantTimeCompare(a[:], b[:]) == 1
		}
	}
	return nil
}

// place is where a repository is, by the names that servers give it.
type place struct {
	Clone   string `json:"clone_url"` // GitHub, Gitea
	SSH     string `json:"ssh_url"`
	Git     string `json:"git_url"`
	HTML    string `json:"html_url"`
	GitHTTP string `json:"git_http_url"` // GitLab
	GitSSH  string `json:"git_ssh_url"`
}

// namesIn finds the URLs of the repository in a call. A body without any, and one
// that says nothing, mean all remotes.
func namesIn(body []byte) ([]string, error) {
	var call struct {
		Remote     string `json:"remote"` // of anybody else: a URL or name as in applianced git
		Repository place  `json:"repository"`
		Project    place  `json:"project"`
	}
	if len(strings.TrimSpace(string(body))) > 0 {
		if err := json.Unmarshal(body, &call); err != nil {
			return nil, errors.New("the body is no JSON: choose the content type application/json")
		}
	}
	var names []string
	for _, n := range []string{call.Remote, call.Repository.Clone, call.Repository.SSH, call.Project.GitHTTP, call.Project.GitSSH,
		call.Repository.GitHTTP, call.Repository.GitSSH, call.Repository.Git, call.Repository.HTML} {
		if n != "" && len(names) < maxNames {
			names = append(names, printable.Brief(n, 2048))
		}
	}
	if len(names) == 0 {
		names = []string{""}
	}
	return names, nil
}
