package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"saltern/internal/localsock"
	"saltern/internal/rpc"
)

// Socket is the name of the master's control socket in its sock_dir.
const Socket = "control.ipc"

// NoMasterFile is a file in the master's configuration folder of a node that runs no master. Its
// single line tells Salt's tools why there is no master.
const NoMasterFile = "no-master"

const maxConns = 16 // connections at once; further callers wait

// Master carries out what its supervisor requests. Refusals are *[rpc.Error]; other errors get
// [rpc.CodeFailed].
type Master interface {
	Minions(finger bool) Minions
	RemoveMember(ctx context.Context, r Removal) error
	StageSecret(ctx context.Context) error
	CommitSecret(ctx context.Context, finger string) error
	SyncHistory() error
	Git() Git
	FetchGit(ctx context.Context, remote string) (Git, error)
	Schedule() (Schedule, error)
	Explain(ctx context.Context, q ExplainQuestion) (Explanation, error)
	LayOutJob(ctx context.Context, q JobFiles) error
	LogIns() (Tokens, error)
	EndLogIns(r Revocation) (Revoked, error)
}

// methods returns the HTTP handler of a table's methods.
func methods(table *rpc.Table, h *rpc.Handlers) http.Handler {
	server := rpc.Server{
		Table:      table,
		Handlers:   h,
		Whole:      true,
		Unreadable: "read the request: ",
		Log:        slog.New(slog.DiscardHandler),
	}
	return server.Handler()
}

// Server serves the control socket of a master, or the door of a supervisor.
type Server struct {
	http *http.Server
	done sync.WaitGroup // counts the goroutine that serves, and all connections
}

// Serve starts to serve a master's control socket on ln, for root and the user of this process. It
// serves until [Server.Close].
func Serve(ln net.Listener, m Master, log *slog.Logger) *Server {
	return serve(ln, handler(m), maxConns, []int{0, os.Geteuid()}, log)
}

// serve starts a server that answers requests of users on ln, on at most conns connections. An
// admitted call must finish within the time in the method's row of its table.
func serve(
	ln net.Listener,
	h http.Handler,
	conns int,
	users []int,
	log *slog.Logger,
) *Server {
	s := &Server{http: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       10 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}}
	s.http.SetKeepAlivesEnabled(false) // an idle connection would keep another caller waiting
	s.http.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew: // done already counts the goroutine that calls this, so Close misses none
			s.done.Add(1)
		case http.StateClosed, http.StateHijacked: // called when the handler has returned
			s.done.Done()
		}
	}

	s.done.Go(func() {
		err := s.http.Serve(localsock.Queue(ln, conns, func(c net.Conn) bool {
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

// closeTakes bounds the wait of Close for a handler that hangs on a disk.
const closeTakes = 5 * time.Second

// Close cuts all connections and waits until every handler has returned, for at most closeTakes.
// The contexts of the handlers end with their connections.
func (s *Server) Close() {
	_ = s.http.Close()
	ended := make(chan struct{})
	go func() { // ends with the last handler
		defer close(ended)
		s.done.Wait()
	}()

	select {
	case <-ended:
	case <-time.After(closeTakes):
	}
}

// peerUID returns the uid of the process that opened the other end, or -1 if that is unknown.
func peerUID(c net.Conn) (int, error) {
	peer, err := localsock.Peer(c)
	if err != nil {
		return -1, err
	}
	return int(peer.Uid), nil
}
