package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/audit"
	"saltern/internal/httpserver"
	"saltern/internal/localsock"
	"saltern/internal/rpc"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/sharedfault"
)

const (
	maxConns  = 64 // connections at the same time; further callers wait
	maxHeader = 16 << 10
)

// Config says what a server serves, and who may call.
type Config struct {
	// Handlers holds the node's functions for the methods of [Table].
	Handlers *rpc.Handlers
	// Settings are used for the text of errors of the node's shared storage. Settings may be nil:
	// the node has no shared storage.
	Settings *settings.Settings
	// Record is the audit log for requests of callers. It may be nil: requests are not recorded.
	Record *audit.Log
	// Admin is a group whose members may call, besides root and the supervisor's own user. If the
	// group is empty or unknown, only those two may.
	Admin string
	Log   *slog.Logger
}

// Server serves the local API.
type Server struct {
	cfg Config
}

// NewServer returns a server. It opens nothing before Listen.
func NewServer(cfg Config) *Server { return &Server{cfg} }

// Listen creates the socket with mode 0660 (owner: this account; group: admin if that exists). It
// replaces a socket file on which no process listens. If a process answers there, Listen returns an
// error.
func (s *Server) Listen(path string) (net.Listener, error) {
	if err := localsock.Free(path); errors.Is(err, localsock.ErrInUse) {
		return nil, fmt.Errorf("listen on %s: another supervisor answers there", path)
	} else if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}

	gid, ok := s.adminGID()
	if !ok {
		gid = -1
	}

	ln, err := localsock.Listen(path, 0o660, gid)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}

	return &listener{localsock.Queue(ln, maxConns, nil), path}, nil
}

func (s *Server) adminGID() (int, bool) {
	if s.cfg.Admin == "" {
		return 0, false
	}
	g, err := user.LookupGroup(s.cfg.Admin)
	if err != nil {
		return 0, false
	}
	gid, err := strconv.Atoi(g.Gid)
	return gid, err == nil
}

// Serve answers requests until ctx ends, and then waits a short time for running answers. It closes
// ln and removes the socket file.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       withPeer,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	srv.SetKeepAlivesEnabled(false) // an idle connection would keep another caller waiting

	err := httpserver.Serve(ctx, srv, ln, 2*time.Second)
	if err == nil {
		return nil
	}

	return fmt.Errorf("local API: %w", err)
}

func (s *Server) handler() http.Handler {
	methods := rpc.Server{
		Table:      Table,
		Handlers:   s.cfg.Handlers,
		Strict:     true,
		Unreadable: "request cannot be read: ",
		Explain:    s.explain,
		Permit:     permit,
		Context:    withToken,
		Actor:      callerOf,
		Record:     s.cfg.Record,
		Log:        s.cfg.Log.With("api", "local"),
	}
	return s.admitCallers(methods.Handler())
}

// explain converts an error to a refusal for the caller. If the shared storage failed, only the log
// gets the details.
func (s *Server) explain(err error) *rpc.Error {
	code := rpc.CodeFailed
	switch {
	case errors.Is(err, service.ErrUnknown), errors.Is(err, errNoVolume):
		code = rpc.CodeNotFound
	case errors.Is(err, ErrConfig):
		code = rpc.CodeConfig
	case errors.Is(err, ErrState):
		code = rpc.CodeState
	}

	text, stored := sharedfault.Words(err, s.cfg.Settings)
	if !stored {
		return &rpc.Error{Code: code, Text: err.Error()}
	}
	s.cfg.Log.Warn("the shared storage failed a request of the local API", "error", err)
	return &rpc.Error{Code: code, Text: text}
}

type tokenKey struct{}

// tokenHeader is the header with a client's token.
const tokenHeader = "X-Setup-Token"

const maxToken = 64

func withToken(r *http.Request) context.Context {
	token := r.Header.Get(tokenHeader)
	return context.WithValue(r.Context(), tokenKey{}, token[:min(len(token), maxToken)])
}

// ClientToken returns the random token of the client that calls, which distinguishes the clients of
// the set-up.
func ClientToken(ctx context.Context) string {
	token, _ := ctx.Value(tokenKey{}).(string)
	return token
}

type peerKey struct{}

type peer struct {
	cred unix.Ucred
	err  error
}

// withPeer adds to the context which process has connected.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	var p peer
	p.cred, p.err = localsock.Peer(c)
	return context.WithValue(ctx, peerKey{}, p)
}

// peerOf returns the credentials of the caller, and whether they are known.
func peerOf(r *http.Request) (unix.Ucred, bool) {
	p, ok := r.Context().Value(peerKey{}).(peer)
	return p.cred, ok && p.err == nil
}

func callerOf(r *http.Request) audit.Actor {
	caller, _ := peerOf(r)
	return audit.PeerProcess(int(caller.Pid), int(caller.Uid))
}

// permit returns nil if the caller may use a method, else the refusal. Only root and the
// supervisor's own user may use a method with the role onlyRoot.
func permit(r *http.Request, _ rpc.Role) *rpc.Error {
	caller, known := peerOf(r)
	if !known || caller.Uid != 0 && int(caller.Uid) != os.Geteuid() {
		return &rpc.Error{Code: rpc.CodeNotPermitted, Text: "only root can ask another node"}
	}
	return nil
}

// admitCallers passes requests on to next if their caller may use the API, and refuses all others.
func (s *Server) admitCallers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, known := peerOf(r)
		if known && s.allowed(caller) {
			next.ServeHTTP(w, r)
			return
		}

		s.cfg.Log.Warn("local API: caller refused", "peer", fmt.Sprintf("%+v", caller), "path", r.URL.Path)
		s.cfg.Record.Note(audit.Record{
			Actor:    callerOf(r),
			Action:   "api.call",
			Object:   r.Method + " " + r.URL.Path,
			Result:   audit.Refused,
			Stranger: true,
		})
		rpc.Refuse(w, &rpc.Error{Code: rpc.CodeNotPermitted, Text: "not permitted"})
	})
}

func (s *Server) allowed(c unix.Ucred) bool {
	if c.Uid == 0 || int(c.Uid) == os.Geteuid() {
		return true
	}

	gid, ok := s.adminGID()
	if !ok {
		return false
	}
	if int(c.Gid) == gid {
		return true
	}

	u, err := user.LookupId(strconv.Itoa(int(c.Uid)))
	if err != nil {
		return false
	}

	groups, err := u.GroupIds()
	return err == nil && slices.Contains(groups, strconv.Itoa(gid))
}

// listener removes the socket file when it is closed.
type listener struct {
	net.Listener
	path string
}

func (l *listener) Close() error {
	err := l.Listener.Close()
	_ = os.Remove(l.path)
	return err
}
