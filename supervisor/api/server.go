// Package api is the supervisor's local API: HTTP and JSON over a unix
// socket. The command line, the console page and the set-up wizard use it and
// nothing else.
//
//	GET  /v1/status                     the status document (package status)
//	GET  /v1/config                     text of the configuration file
//	PUT  /v1/config                     check and replace it; the node starts anew with it
//	POST /v1/config/check               check only
//	POST /v1/reload                     start anew with the file as it is
//	GET  /v1/services/{name}/log?lines= last lines a child wrote
//	POST /v1/services/{name}/restart
//	GET  /v1/storage                    the shared volume as this node sees it
//	     /v1/setup...                   the set-up, see [Setup]
//	     /v1/cluster...                 the cluster's nodes, see [Cluster]
//	     /v1/fit, /v1/cluster/virtual   the virtual address, see [Virtual]
//	     /v1/reset                      all that the node has made is removed, see [Reset]
//	     /v1/options/apply              the master's options of all nodes, see [Options]
//	     /v1/backup                     scheduled backups, see [Backups]
//	     /v1/upgrade                    the system of all nodes, see [Upgrades]
//	     /v1/minions, /v1/keys          minions and their keys, see [Minions]
//	     /v1/tokens                     who is logged in to the API, see [LogIns]
//	     /v1/events, /v1/history        what this node, and all nodes, saw; see [Events]
//	     /v1/audit                      the audit record of all nodes, see [Audit]
//	     /v1/tool                       Salt's tools by another node's master, see [Tools]
//
// Every caller's credentials are checked (SO_PEERCRED): root, the
// supervisor's own user, and members of the admin group. Faults come as
// {"error": "..."} with a fitting HTTP status.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"saltern/supervisor/internal/service"
	"saltern/supervisor/sharedfault"
	"saltern/supervisor/status"
)

// Node is what every machine answers, set up or not. The methods of all parts
// may be called at the same time.
type Node interface {
	Status() status.Document
	Reload() error
	Config() ([]byte, error)
	CheckConfig(text []byte) error
	SetConfig(text []byte) error
}

// Services are the services of the node.
type Services interface {
	Output(name string, lines int) ([]string, error)
	Restart(name string) error
}

// ErrConfig marks a configuration that was refused; the caller gets its text.
var ErrConfig = errors.New("configuration refused")

const (
	maxConns  = 64      // at the same time; further ones are closed at once
	maxBody   = 1 << 20 // of a request
	maxHeader = 16 << 10
	maxLines  = 200
)

// Server listens on the socket.
type Server struct {
	parts Parts
	log   *slog.Logger
	admin string // group name, may be empty
}

// NewServer gives a server for the parts of a node. Members of the group admin may use it
// besides root and our own user; an empty or unknown group adds nobody.
func NewServer(parts Parts, admin string, log *slog.Logger) *Server {
	return &Server{parts: parts.filled(), log: log, admin: admin}
}

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
	if s.admin == "" {
		return 0, false
	}
	g, err := user.LookupGroup(s.admin)
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
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}

	err := httpserver.Serve(ctx, srv, ln, 2*time.Second)
	if err == nil {
		return nil
	}

	return fmt.Errorf("local API: %w", err)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status",
		func(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.parts.Node.Status(), nil) })
	mux.HandleFunc("GET /v1/storage", s.storage)
	mux.HandleFunc("GET /v1/services/{name}/log", s.output)
	mux.HandleFunc("POST /v1/services/{name}/restart", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, struct{}{}, s.parts.Services.Restart(r.PathValue("name")))
	})
	mux.HandleFunc("POST /v1/reload",
		func(w http.ResponseWriter, _ *http.Request) { s.answer(w, struct{}{}, s.parts.Node.Reload()) })
	mux.HandleFunc("GET /v1/config", func(w http.ResponseWriter, _ *http.Request) {
		text, err := s.parts.Node.Config()
		s.answer(w, map[string]string{"text": string(text)}, err)
	})

	mux.HandleFunc("PUT /v1/config", s.config(s.parts.Node.SetConfig))
	mux.HandleFunc("POST /v1/config/check", s.config(s.parts.Node.CheckConfig))
	s.logRoutes(mux, s.parts.Logs)
	s.eventRoutes(mux, s.parts.Events)
	s.clusterRoutes(mux, s.parts.Cluster)
	s.recoveryRoutes(mux, s.parts.Recovery)
	s.virtualRoutes(mux, s.parts.Virtual)
	s.turnRoutes(mux, s.parts.Turns)
	s.optionsRoutes(mux, s.parts.Options)
	s.backupRoutes(mux, s.parts.Backups)
	s.upgradeRoutes(mux, s.parts.Upgrades)
	s.minionRoutes(mux, s.parts.Minions)
	s.gitRoutes(mux, s.parts.Git)
	s.scheduleRoutes(mux, s.parts.Schedule)
	s.tokenRoutes(mux, s.parts.LogIns)
	s.toolRoutes(mux, s.parts.Tools)

	if s.parts.Setup != nil {
		s.setupRoutes(mux, s.parts.Setup)
	}

	if s.parts.Reset != nil {
		s.resetRoutes(mux, s.parts.Reset)
	}

	s.auditRoutes(mux, s.parts.Audit)
	return s.guard(s.audited(mux))
}

func (s *Server) output(w http.ResponseWriter, r *http.Request) {
	n := 50
	if t := r.URL.Query().Get("lines"); t != "" {
		var err error
		if n, err = strconv.Atoi(t); err != nil || n < 0 {
			fail(w, http.StatusBadRequest, "lines is not a number")
			return
		}
	}
	lines, err := s.parts.Services.Output(r.PathValue("name"), min(n, maxLines))
	s.answer(w, map[string][]string{"lines": lines}, err)
}

func (s *Server) config(do func([]byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			fail(w, http.StatusRequestEntityTooLarge, "configuration too large or cut short")
			return
		}
		s.answer(w, struct{}{}, do(text))
	}
}

func (s *Server) answer(w http.ResponseWriter, v any, err error) {
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			s.log.Debug("local API: answer not sent", "error", err)
		}
	case errors.Is(err, service.ErrUnknown):
		fail(w, http.StatusNotFound, s.words(err))
	case errors.Is(err, ErrConfig):
		fail(w, http.StatusUnprocessableEntity, s.words(err))
	case errors.Is(err, ErrState):
		fail(w, http.StatusConflict, s.words(err))
	default:
		fail(w, http.StatusInternalServerError, s.words(err))
	}
}

// words are what the caller reads of an error; what the shared storage said goes to the
// log.
func (s *Server) words(err error) string {
	text, is := sharedfault.Words(err, s.parts.Settings)
	if !is {
		return err.Error()
	}
	s.log.Warn("the shared storage failed a request of the local API", "error", err)
	return text
}

func fail(w http.ResponseWriter, code int, msg string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": msg})
}

type peerKey struct{}

type peer struct {
	cred unix.Ucred
	err  error
}

// withPeer notes who connected.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	var p peer
	p.cred, p.err = localsock.Peer(c)
	return context.WithValue(ctx, peerKey{}, p)
}

// guard lets only permitted peers through to next.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := r.Context().Value(peerKey{}).(peer)
		if !ok || p.err != nil || !s.allowed(p.cred) {
			s.log.Warn("local API: caller refused", "peer", fmt.Sprintf("%+v", p.cred), "path", r.URL.Path)
			s.parts.Record.Note(audit.Record{
				Actor:    audit.PeerProcess(int(p.cred.Pid), int(p.cred.Uid)),
				Action:   "api.call",
				Object:   r.Method + " " + r.URL.Path,
				Result:   audit.Refused,
				Stranger: true,
			})

			fail(w, http.StatusForbidden, "not permitted")
			return
		}

		next.ServeHTTP(w, r)
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
