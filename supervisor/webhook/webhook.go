// Package webhook answers the calls that git servers send after a push, and asks all nodes to fetch
// the repository at once.
//
// A call is a POST of JSON to /webhook. The git server authenticates it with the secret: by an
// HMAC-SHA256 of the body (X-Hub-Signature-256 of GitHub, Gitea, Forgejo and Bitbucket Data Center;
// X-Gitea-Signature), or by the secret itself (X-Gitlab-Token), as the servers' manuals describe. A
// call can only start a fetch of a configured remote, so an attacker who replays a call does no
// harm.
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
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/internal/httpserver"
	"saltern/internal/localsock"
	"saltern/internal/printable"
	"saltern/internal/ratelimit"
)

// Bounds. Sources that have sent no authenticated call lately (strangers) get half of the
// connections and bytes, all together.
const (
	MinSecret = 16      // least length of the secret, in bytes
	maxSecret = 4 << 10 // bytes of the file with the secret
	maxBody   = 2 << 20
	bodyStep  = 64 << 10 // bytes that are read at a time
	maxBodies = 32 << 20 // bytes of all bodies that are being read
	maxConns  = 64
	maxClosed = 64 // number of further connections that are being closed
	maxWait   = 16 // pushes that wait while another one is fetched
	maxNames  = 8  // names of one repository
	workers   = 4
	// fetchTakes bounds how long a call waits for the fetch. The fetches of the masters continue
	// after that.
	fetchTakes = 20 * time.Second
)

// Config configures a listener.
type Config struct {
	Address string // IP:port
	Secret  string // path of the file with the secret; read for each call
	// Fetch asks all nodes to fetch the remote with that URL or name, or all remotes for "". If no
	// node has the remote, its error is NotOurs.
	Fetch   func(ctx context.Context, remote string) error
	NotOurs error
	Log     *slog.Logger
	Now     func() time.Time
}

// hook answers the calls of git servers, and starts the fetches that the calls request.
type hook struct {
	Config
	pushes  pushes
	bodies  *ratelimit.Pool[netip.Addr]  // bounds the bytes of bodies
	friends ratelimit.Lately[netip.Addr] // sources that have lately sent an authenticated call

	// signing is held while the signature of a call from a stranger is checked, so that such checks
	// use at most one processor.
	signing sync.Mutex

	mu    sync.Mutex
	calls map[netip.Addr]*ratelimit.Bucket // limits unauthenticated calls, by source
	lines ratelimit.Bucket                 // limits log lines about unauthenticated calls
	left  int                              // number of such log lines omitted since the last line
}

// strange returns the rate limit of one source for unauthenticated calls. Calls above the rate are
// answered with status 429.
func strange() ratelimit.Rate { return ratelimit.Rate{Burst: 20, PerSecond: 1} }

// strangeLines returns the rate of log lines for all unauthenticated calls together.
func strangeLines() ratelimit.Rate { return ratelimit.Rate{Burst: 20, PerSecond: 0.2} }

// maxSources bounds the table of sources. When the table is full, all sources are removed from it.
const maxSources = 1024

// Serve answers calls until ctx ends. If another program uses the address, Serve keeps trying to
// listen.
func Serve(ctx context.Context, cfg Config) {
	ln, err := httpserver.Listen(ctx, cfg.Address, "the web hook", cfg.Log)
	if err != nil {
		return
	}

	h := newHook(cfg)
	var worker sync.WaitGroup
	defer worker.Wait()

	for range workers { // several workers, so that a remote that does not answer does not delay other remotes
		worker.Go(func() { h.fetchPushes(ctx) })
	}

	places := httpserver.NewPlaces(ratelimit.Shared(maxConns), h.classOf, cfg.Now)
	srv := &http.Server{
		Handler:           h.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ConnState:         places.State,
		ConnContext:       places.Context,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}

	if err := httpserver.Serve(ctx, srv, localsock.Limit(ln, maxConns+maxClosed, nil), time.Second); err != nil {
		cfg.Log.Error("the web hook is not served any more", "error", err)
	}
}

func newHook(cfg Config) *hook {
	return &hook{
		Config: cfg,
		pushes: pushes{wake: make(chan struct{}, 1)},
		bodies: ratelimit.NewPool[netip.Addr](ratelimit.Shared(maxBodies), ratelimit.Bounds{}),
		calls:  map[netip.Addr]*ratelimit.Bucket{},
	}
}

// classOf returns the class of a source.
func (h *hook) classOf(source netip.Addr) ratelimit.Class {
	if h.friends.Has(source, h.Now()) {
		return ratelimit.Familiar
	}
	return ratelimit.Stranger
}

// pushes is the queue of pushes to fetch. Its methods are safe for concurrent use.
//
// Overflow policy: a repository that is already queued is not queued again. If more than maxWait
// are queued, one entry for all remotes replaces them. So no push is lost.
type pushes struct {
	mu   sync.Mutex
	list [][]string    // the names of each repository, any of which may be configured
	wake chan struct{} // wakes a worker: an entry waits
}

func (p *pushes) add(names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []string{""}
	switch same := func(q []string) bool { return slices.Equal(q, names) || slices.Equal(q, all) }; {
	case slices.ContainsFunc(p.list, same):
	case slices.Equal(names, all) || len(p.list) >= maxWait:
		p.list = [][]string{all}
	default:
		p.list = append(p.list, names)
	}
	p.wakeUp()
}

// take returns the names of the push that has waited longest, or nil if none waits.
func (p *pushes) take() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) == 0 {
		return nil
	}
	names, p.list = p.list[0], p.list[1:]
	if len(p.list) > 0 {
		p.wakeUp()
	}
	return names
}

func (p *pushes) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default: // a worker has been woken already
	}
}

// fetchPushes fetches the pushes in the queue, one after the other, until ctx ends.
func (h *hook) fetchPushes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.pushes.wake:
			if names := h.pushes.take(); names != nil {
				h.fetchNamed(ctx, names)
			}
		}
	}
}

// fetchNamed requests a fetch by each name of a repository until a configured name is found.
func (h *hook) fetchNamed(ctx context.Context, names []string) {
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
		code, text := h.judgeCall(w, r)
		if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "10")
		}

		if code != http.StatusAccepted {
			w.Header().Set("Connection", "close") // the rest of the body is not read
		}

		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text+"\n") // the caller may have disconnected
	})

	return mux
}

// judgeCall checks a call and queues its push. It accepts an authenticated call even if other calls
// from the same address were refused.
func (h *hook) judgeCall(w http.ResponseWriter, r *http.Request) (code int, text string) {
	peer := ratelimit.SourceOf(r.RemoteAddr)
	secret, err := h.secret()
	if err != nil {
		h.countMistake(peer, slog.LevelError, "a web hook is refused: its secret cannot be used", "path", h.Secret,
			"error", err)
		return http.StatusServiceUnavailable, "this node has no secret for web hooks; see its log"
	}

	proof := proofOf(r.Header)
	if proof.signature == nil && proof.token == nil {
		return h.refuse(r, "the signature is missing: give the web hook the secret")
	}
	if proof.token != nil && !proof.isToken(secret) { // refuse the call without reading its body
		return h.refuse(r, "the signature is wrong: the secrets differ")
	}

	share := h.bodies.Take(peer, h.classOf(peer), 0)
	defer share.Release()
	body, code, text := h.readBody(w, r, share)
	if code != 0 {
		return code, text
	}
	defer httpserver.Working(r.Context())()

	if proof.token == nil && !h.signed(proof, secret, body, peer) {
		return h.refuse(r, "the signature is wrong: the secrets differ")
	}

	h.friends.Note(peer, h.Now())
	names, err := namesIn(body)
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}

	h.pushes.add(names)
	return http.StatusAccepted, "all nodes fetch"
}

// readBody reads the body of a call, and charges its bytes to share. It returns the code 0 if the
// body is complete.
func (h *hook) readBody(
	w http.ResponseWriter,
	r *http.Request,
	share *ratelimit.Share[netip.Addr],
) (body []byte, code int, text string) {
	from := http.MaxBytesReader(w, r.Body, maxBody)
	for {
		if len(body) == cap(body) {
			step := max(bodyStep, len(body)/2)
			if share == nil || !share.More(int64(step)) {
				return nil, http.StatusServiceUnavailable, "too many calls are under way"
			}
			body = append(make([]byte, 0, len(body)+step), body...)
		}

		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		large, isLarge := errors.AsType[*http.MaxBytesError](err)
		switch {
		case errors.Is(err, io.EOF):
			return body, 0, ""
		case isLarge:
			return nil, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", large.Limit)
		case err != nil:
			return nil, http.StatusBadRequest, "the body cannot be read"
		}
	}
}

// signed reports whether the signature of a call matches the call's body.
func (h *hook) signed(p proof, secret, body []byte, peer netip.Addr) bool {
	if h.classOf(peer) == ratelimit.Stranger {
		h.signing.Lock()
		defer h.signing.Unlock()
	}
	m := hmac.New(sha256.New, secret)
	m.Write(body)
	return hmac.Equal(p.signature, m.Sum(nil))
}

// refuse counts an unauthenticated call and returns the answer to it.
func (h *hook) refuse(r *http.Request, text string) (int, string) {
	if h.countMistake(ratelimit.SourceOf(r.RemoteAddr), slog.LevelWarn,
		"a web hook without the right proof was refused", "peer", r.RemoteAddr) {
		return http.StatusTooManyRequests, text + "; it is not the first time"
	}
	return http.StatusUnauthorized, text
}

// countMistake counts an invalid call of a source and logs it, unless too many such lines were
// logged. It reports whether the source has sent too many invalid calls.
func (h *hook) countMistake(from netip.Addr, level slog.Level, line string, attributes ...any) (tooMany bool) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.calls[from] == nil && len(h.calls) >= maxSources {
		maps.DeleteFunc(h.calls, func(_ netip.Addr, b *ratelimit.Bucket) bool { return b.Used(now, strange()) == 0 })
		if len(h.calls) >= maxSources {
			clear(h.calls) // forgetting is harmless: guessing so long a secret is hopeless
		}
	}

	b := h.calls[from]
	if b == nil {
		b = &ratelimit.Bucket{}
		h.calls[from] = b
	}

	if !h.lines.Take(now, strangeLines(), 1) {
		h.left++
	} else {
		h.Log.Log(context.Background(), level, line, append(attributes, "skipped", h.left)...)
		h.left = 0
	}

	return !b.Take(now, strange(), 1)
}

// secret reads the secret from its file. It refuses a file that other users may read.
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

// proof holds the two ways in which the sender of a call can authenticate with the secret. One
// field is enough; the other may be nil.
type proof struct {
	signature []byte // HMAC-SHA256 of the body
	token     []byte // SHA-256 of the secret itself
}

// isToken reports whether the caller has sent the secret itself as its token.
func (p proof) isToken(secret []byte) bool {
	sum := sha256.Sum256(secret)
	return subtle.ConstantTimeCompare(p.token, sum[:]) == 1
}

// proofOf returns the proof in the headers of a call. Both of its fields are nil if the headers
// have no proof.
func proofOf(head http.Header) (p proof) {
	signed := func(given string) proof {
		b, err := hex.DecodeString(given)
		if err != nil || b == nil {
			b = []byte{} // not nil, but never a valid signature
		}
		return proof{signature: b}
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
		sum := sha256.Sum256([]byte(s))
		return proof{token: sum[:]}
	}

	return proof{}
}

// place holds the addresses of a repository, in the fields that different servers use.
type place struct {
	Clone   string `json:"clone_url"` // URL, as GitHub and Gitea send it
	SSH     string `json:"ssh_url"`
	Git     string `json:"git_url"`
	HTML    string `json:"html_url"`
	GitHTTP string `json:"git_http_url"` // URL, as GitLab sends it
	GitSSH  string `json:"git_ssh_url"`
}

// namesIn returns the URLs of the repository that a call names. If the call names none, or its body
// is empty, namesIn returns only "", which means all remotes.
func namesIn(body []byte) ([]string, error) {
	var call struct {
		Remote     string `json:"remote"` // for scripts: a URL or name as in applianced git
		Repository place  `json:"repository"`
		Project    place  `json:"project"`
	}

	if len(strings.TrimSpace(string(body))) > 0 {
		err := json.Unmarshal(body, &call)
		wrong, isShape := errors.AsType[*json.UnmarshalTypeError](err)
		switch {
		case isShape && wrong.Field != "": // one field is odd, and the others are read
		case isShape:
			return nil, fmt.Errorf("the body is JSON, but it is a %s and no object, as git servers send it", wrong.Value)
		case err != nil:
			return nil, errors.New("the body is no JSON: choose the content type application/json")
		}
	}

	var names []string
	for _, n := range []string{call.Remote, call.Repository.Clone, call.Repository.SSH, call.Project.GitHTTP,
		call.Project.GitSSH,
		call.Repository.GitHTTP, call.Repository.GitSSH, call.Repository.Git, call.Repository.HTML} {
		if n != "" && len(names) < maxNames {
			names = append(names, printable.Brief(withoutUser(n), 2048))
		}
	}

	if len(names) == 0 {
		names = []string{""}
	}

	return names, nil
}

// withoutUser returns a URL without its user and password, which do not matter for the remote that it
// means, and do not belong into the log.
func withoutUser(name string) string {
	scheme, rest, isURL := strings.Cut(name, "://")
	if !isURL {
		return name
	}
	authority, _, _ := strings.Cut(rest, "/")
	behind := authority[strings.LastIndexByte(authority, ']')+1:] // the address of IPv6
	if _, port, _ := strings.Cut(behind, ":"); !strings.Contains(authority, "@") && !isPort(port) {
		authority = rest // "user:pa/ss@host": what looks like a port is the beginning of a password
	}
	return scheme + "://" + rest[strings.LastIndexByte(authority, '@')+1:]
}

// isPort reports whether a text may be the port of a URL.
func isPort(text string) bool { return strings.Trim(text, "0123456789") == "" }
