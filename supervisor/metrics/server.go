package metrics

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"saltern/internal/httpserver"
	"saltern/supervisor/status"
)

// Source provides the figures to serve.
type Source struct {
	// Status returns the node's document. It must not block.
	Status func() status.Document
	// Balancer returns the load balancer's own metrics as text. It may be nil: there are none. If
	// Balancer fails, the page omits these metrics, and saltern_service_running shows the failure.
	Balancer func(context.Context) ([]byte, error)
}

const (
	maxHeader = 8 << 10
	maxConns  = 64 // connections at the same time; further ones wait in the kernel
)

// handler serves /metrics, /healthz and /readyz for GET and HEAD. No answer
// holds a secret.
func handler(s Source) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		var text bytes.Buffer
		_ = writeText(&text, s.Status()) // a write to a buffer cannot fail
		if s.Balancer != nil {
			ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
			defer cancel()
			if more, err := s.Balancer(ctx); err == nil {
				text.Write(more)
			}
		}

		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(text.Bytes()) // the client may have disconnected
	})

	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		d := s.Status()
		if serving(d) {
			respond(w, http.StatusOK, string(d.Health))
			return
		}

		text := fmt.Sprintf("%s, set-up %s", d.Health, d.Setup)
		if d.Arbiter() {
			text += "; it is the arbiter and serves no minions"
		}

		respond(w, http.StatusServiceUnavailable, text)
	})

	return mux
}

func respond(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text)
}

// Serve serves on the address (IP:port) until ctx ends. If another program uses the address, Serve
// tries to listen every ten seconds: missing metrics must not stop a node.
func Serve(ctx context.Context, address string, s Source, log *slog.Logger) {
	ln, err := httpserver.Listen(ctx, address, "the metrics", log)
	if err != nil {
		return
	}
	serve(ctx, ln, s, log)
}

func serve(ctx context.Context, ln net.Listener, s Source, log *slog.Logger) {
	srv := &http.Server{
		Handler:           handler(s),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	err := httpserver.Serve(ctx, srv, &bounded{Listener: ln, slots: make(chan struct{}, maxConns)}, time.Second)
	if err != nil {
		log.Error("metrics are served no more", "error", err)
	}
}

// bounded is a listener that limits the number of connections at the same time.
type bounded struct {
	net.Listener
	slots chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	b.slots <- struct{}{}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &slot{Conn: c, free: b.slots}, nil
}

type slot struct {
	net.Conn
	free chan struct{}
	once sync.Once
}

func (s *slot) Close() error {
	s.once.Do(func() { <-s.free })
	return s.Conn.Close()
}
