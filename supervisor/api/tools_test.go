package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"saltern/internal/control/toolrun"
	"saltern/internal/rpc"
)

// neighbours run tools: the first word says how.
type neighbours struct{ ended chan struct{} }

func (n neighbours) handlers() *rpc.Handlers {
	h := &rpc.Handlers{}
	rpc.Handle(h, RunTool, func(ctx context.Context, q toolrun.Request) (rpc.Stream, error) {
		node, frames, err := n.RunTool(ctx, q)
		return ToolAnswer(node, frames), err
	})
	return h
}

func (n neighbours) RunTool(ctx context.Context, r toolrun.Request) (string, io.ReadCloser, error) {
	switch r.Words[0] {
	case "none":
		return "", nil, fmt.Errorf("%w: no other node answers", ErrState)
	case "unknown":
		return "", nil, errors.New("n2: EOF")
	}

	from, to := io.Pipe()
	go func() {
		_ = toolrun.WriteFrame(to, toolrun.Stdout, []byte("web1:\n"))
		if r.Words[0] == "long" {
			<-ctx.Done()
			close(n.ended)
		}
		_ = to.CloseWithError(toolrun.WriteFrame(to, toolrun.Exit, []byte{3}))
	}()

	return "n2 (10.0.0.2)", from, nil
}

func TestTools(t *testing.T) {
	n := neighbours{make(chan struct{})}
	path := filepath.Join(t.TempDir(), "a.sock")
	s := NewServer(Config{Handlers: n.handlers(), Log: quiet()})
	ln, err := s.Listen(path)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	c := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}}

	ask := func(body string) *http.Response {
		t.Helper()
		resp, err := c.Post("http://applianced"+toolrun.Path, "", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}

	words := func(w string) string { return `{"tool":"salt","user":"root","words":["` + w + `"]}` }
	for body, want := range map[string]int{
		words("none"): http.StatusConflict, words("unknown"): http.StatusInternalServerError, `{"tool":"sh","user":"root"}`: http.StatusBadRequest,
		`{`: http.StatusBadRequest, `"` + strings.Repeat("x", toolrun.MaxBytes) + `"`: http.StatusBadRequest,
	} {
		if got := ask(body).StatusCode; got != want {
			t.Errorf("%.60s: status %d, want %d", body, got, want)
		}
	}

	resp := ask(words("short"))
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.Header.Get(toolrun.AskedHeader) != "n2 (10.0.0.2)" ||
		!bytes.Equal(b, []byte("o\x00\x06web1:\nx\x00\x01\x03")) {
		t.Errorf("%q from %q, %v", b, resp.Header.Get(toolrun.AskedHeader), err)
	}

	resp = ask(words("long"))
	if k, data, err := toolrun.ReadFrame(resp.Body); err != nil || k != toolrun.Stdout || string(data) != "web1:\n" {
		t.Errorf("%c %q %v", k, data, err)
	}

	_ = resp.Body.Close() // Ctrl-C
	<-n.ended
}

// The group of the administrators may use the local API; only root has another node
// asked with the rights of the master's account.
func TestToolsOfRootOnly(t *testing.T) {
	mux := (&rpc.Server{
		Table:    Table,
		Handlers: neighbours{}.handlers(),
		Permit:   permit,
		Log:      quiet(),
	}).Handler()
	for uid, want := range map[int]int{
		54321:        http.StatusForbidden,
		0:            http.StatusConflict,
		os.Geteuid(): http.StatusConflict,
	} {
		r := httptest.NewRequest(http.MethodPost, toolrun.Path,
			strings.NewReader(`{"tool":"salt","user":"root","words":["none"]}`))
		w := httptest.NewRecorder()
		mux.ServeHTTP(w,
			r.WithContext(context.WithValue(r.Context(), peerKey{}, peer{cred: unix.Ucred{Uid: uint32(uid)}})))

		if w.Code != want {
			t.Errorf("user %d: status %d, want %d", uid, w.Code, want)
		}
	}

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, toolrun.Path, nil))
	if w.Code != http.StatusForbidden {
		t.Errorf("nobody: status %d", w.Code)
	}
}
