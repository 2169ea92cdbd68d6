package restapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/audit"
	"saltern/internal/httpserver"
	"saltern/internal/localsock"
	"saltern/internal/ratelimit"
	"saltern/internal/writable"
	"saltern/master/client"
	"saltern/master/conf"
	"saltern/master/internal/oidc"
	"saltern/master/internal/ratelog"
	"saltern/master/restapi/internal/console"
)

const maxHeader = 32 << 10

// Server answers the requests to salt-api. Its methods may be called concurrently.
type Server struct {
	master *conf.Master
	opts   Options
	log    *slog.Logger
	quiet  *slog.Logger // log with a limited rate, for lines that unauthenticated senders can cause
	now    func() time.Time
	user   string
	audit  *audit.Log

	guard     *guard
	pools     pools
	places    *httpserver.Places // slots of connections
	balancers *balancers         // addresses of the cluster's load balancers
	life      *life              // checks whether the master answers
	sessions  *writable.Watch    // watches whether the folder of log-ins accepts writes
	hub       *hub
	shared    *client.Shared // connections to the master that all commands share

	static  *os.Root // folder of static files; nil: none
	sockets sync.WaitGroup
	ending  chan struct{} // closed when Serve ends
	access  *accessLog    // nil: no access log
	routes  map[string]endpoint
	console *console.Console // nil: the console is off
	oidc    *oidc.Provider   // nil: no sign-in by an OpenID provider
	started time.Time
	count   counters
}

// counters holds numbers of events since the start; showStats explains each number.
type counters struct {
	requests, wrong, limited, busy, large, cut, refused, events, unlogged atomic.Uint64
}

// New returns a server for the master with configuration m. getenv reads the environment; programs
// pass os.Getenv. The caller must call Close when it no longer needs the server.
func New(m *conf.Master, o Options, log *slog.Logger, getenv func(string) string) (*Server, error) {
	s := &Server{
		master:    m,
		opts:      o,
		log:       log,
		quiet:     slog.New(ratelog.New(log.Handler(), time.Now)),
		now:       time.Now,
		user:      client.CurrentUser(getenv),
		guard:     newGuard(),
		pools:     newPools(o),
		balancers: &balancers{path: o.Balancers},
		started:   time.Now(),
		ending:    make(chan struct{}),
	}

	s.places = s.newPlaces()
	s.life = newLife(s.pingMaster, s.now)
	machine, _ := os.Hostname() // on an error the name is "", and all machines without a name share one test file
	s.sessions = watchSessions(m.TokenDir, machine, log)
	s.hub = newHub(m.SockDir, log, s.userOfJob)
	s.shared = client.NewShared(m.SockDir)
	s.routes = routes(o)
	s.audit = audit.Open(m.Audit("salt-api", log))
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
		if s.access, err = openAccessLog(o.AccessFile); err != nil {
			s.Close()
			return nil, err
		}
	}

	return s, nil
}

// Close ends the goroutines that New has started. Call Close after Serve has returned.
func (s *Server) Close() {
	s.hub.closeAndWait()
	s.life.stop()
	s.shared.Close()
	s.audit.Close()
	if s.static != nil {
		s.static.Close()
	}
	if s.access != nil {
		_ = s.access.file.Close()
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

		secure = &tls.Config{
			Certificates: []tls.Certificate{pair},
			MinVersion:   tls.VersionTLS12,
			NextProtos:   []string{"h2", "http/1.1"},
		}
	}

	ln, err := s.openListener()
	if err != nil {
		return nil, err
	}

	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}

	return ln, nil
}

// openListener opens the port for load balancers or for clients, without TLS.
func (s *Server) openListener() (net.Listener, error) {
	if s.opts.Behind != "" {
		return s.listenBehind()
	}
	ln, err := net.Listen("tcp", s.opts.Address())
	if err != nil {
		return nil, fmt.Errorf("listen on rest_cherrypy's host and port: %w", err)
	}
	return localsock.Limit(ln, maxSockets, nil), nil
}

// certificate loads ssl_crt with ssl_chain, and ssl_key.
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

// streams returns the limits of an HTTP/2 connection. A browser has one connection for all its
// tabs, in which streams of events cost little. Package net/http ends a connection if its client
// resets streams faster than their handlers end, or sends headers without end.
func streams() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          100,
		MaxDecoderHeaderTableSize:     4 << 10,
		MaxEncoderHeaderTableSize:     4 << 10,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerConnection: 256 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
		SendPingTimeout:               30 * time.Second,
		PingTimeout:                   15 * time.Second,
		WriteByteTimeout:              writeTime,
	}
}

// Serve answers requests on ln until ctx ends, and closes ln. It may be called only once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeader,
		HTTP2:             streams(),
		ConnState:         s.places.State,
		ConnContext:       s.places.Context,
		ErrorLog:          slog.NewLogLogger(s.quiet.Handler(), slog.LevelInfo),
	}

	end := sync.OnceFunc(func() { // without this call, readers of events would never finish
		s.hub.cutAll()
		close(s.ending)
	})

	srv.RegisterOnShutdown(end)
	var beside sync.WaitGroup
	beside.Go(func() { s.sessions.Run(ctx) })
	err := httpserver.Serve(ctx, srv, ln, 10*time.Second)
	end()
	beside.Wait()
	s.sockets.Wait() // http.Server does not wait for these connections

	return err
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == readyPath && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		s.readyz(w, r)
		return
	}

	if s.turnsAway() {
		w.Header().Set("Connection", "close")
	}

	s.count.requests.Add(1)
	q := &request{w: w, http: r, from: ratelimit.SourceOf(r.RemoteAddr)}
	s.recognize(q)
	defer q.releaseAll()

	defer s.logAccess(q)
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}

	defer func() {
		if p := recover(); p != nil {
			s.quiet.Error("a request ended in a fault of this program", "path", r.URL.Path, "error",
				fmt.Sprint(p), "stack", string(debug.Stack()))
			if q.code == 0 {
				s.sendPage(q, &failure{code: http.StatusInternalServerError})
			}
		}
	}()

	place := s.pools.requests.Take(q.holder, q.class, 1)
	if place == nil {
		s.count.busy.Add(1)
		s.sendPage(q, &failure{code: http.StatusServiceUnavailable})
		return
	}

	q.keepShare(place)
	if err := s.routeRequest(q); err != nil {
		s.sendError(q, err)
	}
}
