package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"saltern/internal/localsock"
	"saltern/internal/pause"
)

// maxAdminConns bounds the open connections to the admin socket, and separately those to the
// metrics address. Connections above the bound are closed.
const maxAdminConns = 32

func (p *Proxy) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	st := p.Status()
	_ = writeMetrics(w, &st) // the client may have disconnected
}

// startAdmin opens the sockets of the configuration and returns a function that closes them.
func (p *Proxy) startAdmin(ctx context.Context, wg *sync.WaitGroup) (func(), error) {
	var closers []func()
	closeAll := func() {
		for _, f := range slices.Backward(closers) {
			f()
		}
	}

	serve := func(ln net.Listener, h http.Handler) {
		srv := adminServer(h)
		srv.SetKeepAlivesEnabled(false) // an idle connection would keep another caller waiting
		wg.Go(func() {
			if err := srv.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) &&
				!errors.Is(err, net.ErrClosed) {
				p.log.Error("serve admin", "error", err)
			}
		})

		closers = append(closers, func() { _ = srv.Close() })
	}

	a := &p.cfg.Admin
	if a.Socket != "" {
		ln, err := listenUnix(a.Socket, os.FileMode(a.Mode), p.inherits)
		if err != nil {
			return nil, err
		}
		p.adminSockets = append(p.adminSockets, ln)
		serve(localsock.Queue(ln, maxAdminConns, p.admits(a.UIDs...)), p.Handler())
	}

	if a.Metrics != "" {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /metrics", p.serveMetrics)
		ln, err := net.Listen("tcp", a.Metrics)
		switch {
		case err == nil:
			p.metrics = ln // closed early by a hand-over
			serve(localsock.Limit(ln, maxAdminConns, nil), mux)
		case p.inherits && errors.Is(err, syscall.EADDRINUSE):
			wg.Go(func() { p.metricsLater(ctx, a.Metrics, mux) })
		default:
			closeAll()
			return nil, fmt.Errorf("listen for metrics: %w", err)
		}
	}

	if a.Handover != "" {
		ln, err := listenUnix(a.Handover, 0o600, p.inherits)
		if err != nil {
			closeAll()
			return nil, err
		}
		p.adminSockets = append(p.adminSockets, ln)
		wg.Go(func() { p.serveHandover(ctx, localsock.Limit(ln, 1, p.admits())) })
		closers = append(closers, func() { _ = ln.Close() })
	}

	return closeAll, nil
}

func adminServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
}

// metricsLater serves metrics as soon as the earlier process has released the address.
func (p *Proxy) metricsLater(ctx context.Context, addr string, h http.Handler) {
	for range 100 {
		if pause.For(ctx, 100*time.Millisecond) != nil {
			return
		}

		ln, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}

		srv := adminServer(h)
		stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
		defer stop()

		if err := srv.Serve(localsock.Limit(ln, maxAdminConns, nil)); err != nil &&
			!errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			p.log.Error("serve metrics", "error", err)
		}

		return
	}

	p.log.Error("metrics are not served: the address stays in use", "addr", addr)
}

// listenUnix creates a unix socket that has the mode as soon as it exists. It replaces a socket on
// which nobody listens. If replace is set, it also replaces a socket in use: the process that
// listens there keeps its open connections and gets no new connections.
func listenUnix(path string, mode os.FileMode, replace bool) (*localsock.Listener, error) {
	if !replace {
		if err := localsock.Free(path); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
	}
	ln, err := localsock.Listen(path, mode, -1)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return ln, nil
}

// admits returns a function that admits only peers that are root, the proxy's own user, or one of uids.
func (p *Proxy) admits(uids ...int) func(net.Conn) bool {
	return func(c net.Conn) bool {
		peer, err := localsock.Peer(c)
		uid := int(peer.Uid)
		if err != nil {
			uid = -1
		}
		if err == nil && (uid == 0 || uid == os.Geteuid() || slices.Contains(uids, uid)) {
			return true
		}
		p.log.Warn("admin connection refused", "uid", uid, "error", err)
		return false
	}
}
