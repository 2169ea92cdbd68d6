package restapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"saltern/audit"
	"saltern/httpserver"
	"saltern/localsock"
	"saltern/master/client"
	"saltern/master/conf"
	"saltern/master/internal/oidc"
	"saltern/master/internal/ratelog"
	"saltern/master/redact"
	"saltern/master/restapi/console"
	"saltern/printable"
	"saltern/ratelimit"
)

const (
	maxConns    = 1024
	maxOfOne    = 256 // connections of one address
	maxHeader   = 32 << 10
	maxLogins   = 32
	queueTime   = 30 * time.Second
	maxReaders  = 512 // of events
	maxReadersA = 32  // of one address
)

// Server answers requests. Its methods may be called concurrently.
type Server struct {
	master *conf.Master
	opts   Options
	log    *slog.Logger
	quiet  *slog.Logger // for lines that strangers can cause
	now    func() time.Time
	user   string
	audit  *audit.Log

	guard   *guard
	hub     *hub
	shared  *client.Shared // of all commands
	workers chan struct{}  // requests at work
	queue   chan struct{}  // those and the ones that wait
	logins  chan struct{}
	conns   perAddress    // connections
	readers perAddress    // of events
	formats chan struct{} // readers of formatted events
	static  *os.Root      // nil: none
	sockets sync.WaitGroup
	ending  chan struct{} // closed when Serve ends
	access  *os.File      // nil: none
	routes  map[string]endpoint
	console *console.Console // nil: it is off
	oidc    *oidc.Provider   // nil: browsers do not sign in with one
	started time.Time
	count   counters
}

// counters are since the start; see Stats for their meaning.
type counters struct {
	requests, wrong, limited, busy, large, cut, refused, events atomic.Uint64
}

// New makes a server for the master of a configuration. getenv is os.Getenv
// outside of tests. Close must be called in the end.
func New(m *conf.Master, o Options, log *slog.Logger, getenv func(string) string) (*Server, error) {
	s := &Server{master: m, opts: o, log: log, quiet: slog.New(ratelog.New(log.Handler(), time.Now)), now: time.Now,
		user: client.CurrentUser(getenv), guard: newGuard(), started: time.Now(),
		workers: make(chan struct{}, o.Workers), queue: make(chan struct{}, o.Workers+o.Queue), logins: make(chan struct{}, maxLogins), formats: make(chan struct{}, maxFormatted), ending: make(chan struct{})}
	s.hub = newHub(m.SockDir, log, s.userOfJob)
	s.shared = client.NewShared(m.SockDir)
	s.routes = routes(o)
	s.audit = audit.Open(m.Audit("salt-api"))
	var err error
	if o.Console {
		if s.console, err = s.newConsole(); err != nil {
			return nil, err
		}
	}
	if o.Static != "" {
		if s.static, err = os.OpenRoot(o.Static); err != nil {
			s.Close()
			return nil, fmt.Errorf("open the folder of rest_cherrypy: static: %w", err)
		}
	}
	if o.AccessFile != "" {
		if s.access, err = os.OpenFile(o.AccessFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640); err != nil {
			s.Close()
			return nil, fmt.Errorf("open the file of rest_cherrypy: log_access_file: %w", err)
		}
	}
	return s, nil
}

// Close ends what New has begun. Serve must have returned.
func (s *Server) Close() {
	s.hub.close()
	s.shared.Close()
	s.audit.Close()
	if s.static != nil {
		s.static.Close()
	}
	if s.access != nil {
		s.access.Close()
	}
}

// Listen opens the port, with TLS 1.2 at least unless disable_ssl is set.
func (s *Server) Listen() (net.Listener, error) {
	var secure *tls.Config
	if s.opts.Cert != "" {
		pair, err := certificate(s.opts)
		if err != nil {
			return nil, err
		}
		secure = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	}
	ln, err := s.open()
	if err != nil {
		return nil, err
	}
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	return ln, nil
}

func (s *Server) open() (net.Listener, error) {
	if s.opts.Behind != "" {
		return s.listenBehind()
	}
	ln, err := net.Listen("tcp", s.opts.Address())
	if err != nil {
		return nil, fmt.Errorf("listen on rest_cherrypy's host and port: %w", err)
	}
	return localsock.Limit(ln, maxConns, nil), nil
}

// certificate reads ssl_crt with ssl_chain, and ssl_key.
func certificate(o Options) (tls.Certificate, error) {
	var pem []byte
	for _, path := range []string{o.Cert, o.Chain} {
		if path == "" {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("read the certificate of rest_cherrypy: %w", err)
		}
		pem = append(append(pem, b...), '\n')
	}
	key, err := os.ReadFile(o.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read rest_cherrypy's ssl_key: %w", err)
	}
	pair, err := tls.X509KeyPair(pem, key)
	if err != nil {
		return pair, fmt.Errorf("use %s with the key %s: %w", o.Cert, o.Key, err)
	}
	return pair, nil
}

// stopTime is how long running answers may take when the program ends.
const stopTime = 10 * time.Second

// Serve answers on ln until ctx ends, and closes it. It is called once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		ConnState: s.connState, ErrorLog: slog.NewLogLogger(s.quiet.Handler(), slog.LevelInfo)}
	end := sync.OnceFunc(func() { // readers of events would never finish
		s.hub.end()
		close(s.ending)
	})
	srv.RegisterOnShutdown(end)
	err := httpserver.Serve(ctx, srv, ln, stopTime)
	end()
	s.sockets.Wait() // the server of HTTP has forgotten them
	return err
}

// connState counts connections of an address and closes those that are too many.
func (s *Server) connState(c net.Conn, state http.ConnState) {
	a := ratelimit.SourceOf(c.RemoteAddr().String())
	switch state {
	case http.StateNew:
		if !s.conns.add(a, maxOfOne) {
			s.count.refused.Add(1)
			_ = c.Close()
		}
	case http.StateClosed, http.StateHijacked:
		s.conns.done(a)
	}
}

// perAddress counts what each address has. The zero value is ready.
type perAddress struct {
	mu sync.Mutex
	n  map[netip.Addr]int
	of int
}

// add counts one more and reports whether those are at most most. done must be
// called either way.
func (p *perAddress) add(a netip.Addr, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == nil {
		p.n = map[netip.Addr]int{}
	}
	p.n[a]++
	p.of++
	return p.n[a] <= most
}

func (p *perAddress) done(a netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of--
	if p.n[a]--; p.n[a] <= 0 {
		delete(p.n, a)
	}
}

func (p *perAddress) all() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of
}

// masterIsUp reports whether a master has served the socket directory; Salt's API
// asks the same before it sends anything.
func (s *Server) masterIsUp() bool {
	_, err := os.Stat(filepath.Join(s.master.SockDir, "workers.ipc"))
	return err == nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == readyPath && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		s.readyz(w)
		return
	}
	s.count.requests.Add(1)
	q := &request{w: w, http: r, from: ratelimit.SourceOf(r.RemoteAddr)}
	defer s.logAccess(q)
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a request ended in a fault of this program", "path", r.URL.Path, "error", fmt.Sprint(p), "stack", string(debug.Stack()))
			if q.code == 0 {
				s.page(q, &failure{code: http.StatusInternalServerError})
			}
		}
	}()
	if err := s.serve(q); err != nil {
		s.fail(q, err)
	}
}

// logAccess writes a line as web servers do.
func (s *Server) logAccess(q *request) {
	if s.access == nil {
		return
	}
	r := q.http
	_, err := fmt.Fprintf(s.access, "%s - - [%s] \"%s %s %s\" %d %d \"%s\" \"%s\"\n", q.from, s.now().Format("02/Jan/2006:15:04:05 -0700"),
		printable.Brief(r.Method, 16), printable.Brief(r.URL.EscapedPath(), 1024), r.Proto, q.code, q.sent,
		printable.Brief(redact.Text(cmp.Or(r.Referer(), "-")), 256), printable.Brief(cmp.Or(r.UserAgent(), "-"), 256))
	if err != nil {
		s.quiet.Warn("the access log cannot be written", "path", s.opts.AccessFile, "error", err)
	}
}
