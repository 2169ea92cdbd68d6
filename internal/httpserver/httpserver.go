// Package httpserver serves HTTP until a context ends. The local API, the API between nodes, the
// metrics, the web hook and Salt's API use it.
package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"saltern/internal/pause"
)

// Listen listens on an address (IP:port). If another program uses the address, Listen keeps trying,
// because a missing listener must not stop the node. It returns an error only when ctx has ended.
// name is the service's name in the log.
func Listen(ctx context.Context, address, name string, log *slog.Logger) (net.Listener, error) {
	for warned := false; ; warned = true {
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", address)
		if err == nil {
			return ln, nil
		}
		if !warned && ctx.Err() == nil {
			log.Warn("cannot serve "+name+" yet", "address", address, "error", err)
		}
		if err := pause.For(ctx, 10*time.Second); err != nil {
			return nil, err
		}
	}
}

// Serve answers requests on ln until ctx ends. Then it lets running answers finish within grace,
// closes ln, and returns. The error is nil if ctx has ended.
func Serve(ctx context.Context, srv *http.Server, ln net.Listener, grace time.Duration) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if srv.Shutdown(short) != nil {
			_ = srv.Close()
		}
	})

	err := srv.Serve(ln)
	if !stop() {
		<-ended
	}

	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}

	return err
}
