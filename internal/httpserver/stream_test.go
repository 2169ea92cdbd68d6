package httpserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/pause"
)

// pipes accepts connections in memory, whose deadlines follow the clock of a synctest bubble.
type pipes struct {
	calls chan net.Conn
	ended chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.ended); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// request sends a request to a handler, by HTTP/1 or by HTTP/2, and calls read with the answer.
func request(t *testing.T, http2 bool, handler http.HandlerFunc, read func(body io.Reader)) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)

	listener := &pipes{calls: make(chan net.Conn), ended: make(chan struct{})}
	server := &http.Server{Handler: handler, Protocols: protocols}
	done := make(chan struct{})
	go func() { _ = server.Serve(listener); close(done) }()

	client := &http.Transport{
		Protocols: protocols,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			listener.calls <- theirs
			return ours, nil
		},
	}

	res, err := (&http.Client{Transport: client}).Get("http://pipe/")
	if err != nil {
		t.Fatal(err)
	}

	read(res.Body)
	res.Body.Close()
	client.CloseIdleConnections()
	server.Close()
	<-done
}

// TestStream: a stream outlives any time in which nothing is written. A write to a reader that reads
// nothing fails at the limit.
func TestStream(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run("idle by "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				speak := func(w http.ResponseWriter, r *http.Request) {
					out := Stream(w, 30*time.Second)
					for _, silence := range []time.Duration{0, 31 * time.Second, time.Second, 20 * time.Hour} {
						_ = pause.For(r.Context(), silence)
						if _, err := io.WriteString(out, "x"); err != nil {
							t.Errorf("after %s without a write: %v", silence, err)
						}
					}
				}

				request(t, http2, speak, func(body io.Reader) {
					if got, err := io.ReadAll(body); string(got) != "xxxx" || err != nil {
						t.Errorf("read %q: %v", got, err)
					}
				})
			})
		})

		t.Run("stuck by "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan struct{})
				speak := func(w http.ResponseWriter, _ *http.Request) {
					defer close(ended)
					began := time.Now()
					_, err := Stream(w, 30*time.Second).Write(make([]byte, 64<<20))
					if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != 30*time.Second {
						t.Errorf("the write ended after %s: %v", took, err)
					}
				}

				request(t, http2, speak, func(io.Reader) { <-ended })
			})
		})
	}
}
