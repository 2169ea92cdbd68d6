package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"saltern/internal/localsock"
)

// Socket is the name of the master's control socket in its sock_dir.
const Socket = "control.ipc"

// NoMasterFile lies in the master's configuration folder on a node that runs no
// master. Its one line says why, for Salt's tools.
const NoMasterFile = "no-master"

const (
	maxConns   = 16       // at once; more are closed
	maxRequest = 64 << 10 // bytes of a request
	// verbTakes bounds a change of the cluster.
	verbTakes = 40 * time.Second
)

// Master is what a master does for its supervisor. Refusals are *[Error]; other
// errors get [CodeFailed].
type Master interface {
	Minions(finger bool) Minions
	RemoveMember(ctx context.Context, r Removal) error
	StageSecret(ctx context.Context) error
	CommitSecret(ctx context.Context, finger string) error
	Git() Git
	FetchGit(ctx context.Context, remote string) (Git, error)
	Schedule() (Schedule, error)
	LogIns() (Tokens, error)
	EndLogIns(r Revocation) (Revoked, error)
}

// verb is the body of a POST. Arguments are no part of the path, which may be
// logged.
type verb struct {
	Removal
	Finger string `json:"finger,omitempty"`
}

// handler is the protocol: GET /v1/minions[?finger=true], /v1/git, /v1/schedule and /v1/tokens, and
// POST to /v1/cluster/{remove,secret_next,secret_commit}, /v1/git/fetch and
// /v1/tokens/revoke, answered when it is done.
func handler(m Master) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/minions", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, m.Minions(r.FormValue("finger") == "true"))
	})
	mux.HandleFunc("GET /v1/git", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, m.Git()) })
	post := func(name string, f func(context.Context, verb) error) {
		mux.HandleFunc("POST /v1/cluster/"+name,
			taking(maxRequest, verbTakes,
				func(ctx context.Context, v verb) (any, error) { return struct{}{}, f(ctx, v) }))
	}

	post("remove", func(ctx context.Context, v verb) error { return m.RemoveMember(ctx, v.Removal) })
	post("secret_next", func(ctx context.Context, _ verb) error { return m.StageSecret(ctx) })
	post("secret_commit", func(ctx context.Context, v verb) error { return m.CommitSecret(ctx, v.Finger) })
	mux.HandleFunc("POST /v1/git/fetch",
		taking(maxRequest, verbTakes,
			func(ctx context.Context, q gitRequest) (any, error) { return m.FetchGit(ctx, q.Remote) }))
	mux.HandleFunc("GET /v1/schedule", giving(func(context.Context) (Schedule, error) { return m.Schedule() }))
	mux.HandleFunc("GET /v1/tokens", giving(func(context.Context) (Tokens, error) { return m.LogIns() }))
	mux.HandleFunc("POST /v1/tokens/revoke",
		taking(maxRequest, verbTakes, func(_ context.Context, r Revocation) (any, error) { return m.EndLogIns(r) }))

	return mux
}

// taking reads the body of a request, of so many bytes at most, and answers with what f
// gives, which has so long.
func taking[T any](most int64, takes time.Duration, f func(context.Context, T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var v T
		var out any
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, most)).Decode(&v)
		if err != nil {
			err = &Error{Code: CodeBadRequest, Text: "read the request: " + err.Error()}
		} else {
			ctx, cancel := context.WithTimeout(r.Context(), takes)
			defer cancel()
			out, err = f(ctx, v)
		}
		conclude(w, out, err)
	}
}

// conclude answers with v, or with why not.
func conclude(w http.ResponseWriter, v any, err error) {
	if err == nil {
		reply(w, http.StatusOK, v)
		return
	}
	var refused *Error
	if !errors.As(err, &refused) {
		refused = &Error{Code: CodeFailed, Text: err.Error()}
	}
	reply(w, refused.status(), refused)
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

// Server serves the control socket of a master, or the door of a supervisor.
type Server struct {
	http *http.Server
	done sync.WaitGroup
}

// Serve answers on ln for root and the user of this process, until Close.
func Serve(ln *net.UnixListener, m Master, log *slog.Logger) *Server {
	return serve(ln, handler(m), maxConns, verbTakes, []int{0, os.Geteuid()}, log)
}

// serve answers on ln for these users. takes bounds what is done for a request.
func serve(
	ln *net.UnixListener,
	h http.Handler,
	conns int,
	takes time.Duration,
	users []int,
	log *slog.Logger,
) *Server {
	s := &Server{http: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      takes + 20*time.Second,
		IdleTimeout:       10 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}}

	s.done.Go(func() {
		err := s.http.Serve(localsock.Limit(ln, conns, func(c net.Conn) bool {
			uid, err := peerUID(c)
			ok := err == nil && slices.Contains(users, uid)
			if !ok {
				log.Warn("control connection refused", "uid", uid, "error", err)
			}
			return ok
		}))
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			log.Error("the control socket is not served any more", "error", err)
		}
	})

	return s
}

// Close cuts all connections and waits until nothing is served.
func (s *Server) Close() {
	_ = s.http.Close() // what is under way ends with its connection
	s.done.Wait()
}

// peerUID returns the user who opened the other end, -1 if that is unknown.
func peerUID(c net.Conn) (int, error) {
	peer, err := localsock.Peer(c)
	if err != nil {
		return -1, err
	}
	return int(peer.Uid), nil
}
