// Package httpserver serves HTTP for as long as a context lasts: the local
// API, the API between nodes and the metrics.
package httpserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Serve answers on ln until ctx ends, lets running answers finish for as long
// as grace, and closes ln. The error is nil when ctx has ended it. It returns
// when the shutdown is complete.
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
