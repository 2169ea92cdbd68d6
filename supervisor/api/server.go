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
	maxConns  = 64 // at the same time; further ones are closed at once
	maxHeader = 16 << 10
)

// Config says what a server serves, and to whom.
type Config struct {
	// Handlers are the functions of the node for the methods of [Table].
	Handlers *rpc.Handlers
	// Settings word the faults of the node's shared storage. It may be nil: the node has none.
	Settings *settings.Settings
	// Record is where the requests of callers are written down. It may be nil: nowhere.
	Record *audit.Log
	// Admin is a group whose members may call, besides root and our own user. One that is
	// empty or unknown adds nobody.
	Admin string
	Log   *slog.Logger
}

// Server listens on the socket.
type Server struct {
	cfg Config
}

// NewServer returns a server. Nothing is opened before Listen.
func NewServer(cfg Config) *Server { return &Server{cfg} }

// Listen makes the socket with mode 0660 (owner: us, group: admin if it
// exists). A socket file that nobody listens on is replaced; one that answers
// is an error.
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

	return &listener{localsock.Limit(ln, maxConns, nil), path}, nil
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

// Serve answers until ctx ends, then lets running answers finish for a short
// time. It closes ln and removes its socket file.
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

// explain words an error for the caller. What the shared storage said goes to the log.
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

// tokenHeader carries a client's token.
const tokenHeader = "X-Setup-Token"

const maxToken = 64

func withToken(r *http.Request) context.Context {
	token := r.Header.Get(tokenHeader)
	return context.WithValue(r.Context(), tokenKey{}, token[:min(len(token), maxToken)])
}

// ClientToken returns the random token of the client that calls. It tells clients of the
// set-up from each other.
func ClientToken(ctx context.Context) string {
	token, _ := ctx.Value(tokenKey{}).(string)
	return token
}

type peerKey struct{}

type peer struct {
	cred unix.Ucred
	err  error
}

// withPeer adds to the context who connected.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	var p peer
	p.cred, p.err = localsock.Peer(c)
	return context.WithValue(ctx, peerKey{}, p)
}

// peerOf returns who calls; false: nobody knows.
func peerOf(r *http.Request) (unix.Ucred, bool) {
	p, ok := r.Context().Value(peerKey{}).(peer)
	return p.cred, ok && p.err == nil
}

func callerOf(r *http.Request) audit.Actor {
	caller, _ := peerOf(r)
	return audit.PeerProcess(int(caller.Pid), int(caller.Uid))
}

// permit refuses what only root may ask for.
func permit(r *http.Request, _ rpc.Role) *rpc.Error {
	caller, known := peerOf(r)
	if !known || caller.Uid != 0 && int(caller.Uid) != os.Geteuid() {
		return &rpc.Error{Code: rpc.CodeNotPermitted, Text: "only root can ask another node"}
	}
	return nil
}

// admitCallers lets only permitted callers through to next.
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

// listener removes the socket file at the end.
type listener struct {
	net.Listener
	path string
}

func (l *listener) Close() error {
	err := l.Listener.Close()
	_ = os.Remove(l.path)
	return err
}
