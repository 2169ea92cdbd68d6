package localsock

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestClient(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			_, _ = w.Write(make([]byte, 101))
		case "/no":
			http.Error(w, "because", http.StatusConflict)
		default:
			_, _ = w.Write([]byte(r.Method + r.Header.Get("X-A")))
		}
	}))
	defer srv.Close()

	host := strings.TrimPrefix(srv.URL, "http://")
	c := Client{HTTP: srv.Client(), MaxAnswer: 100}
	if b, err := c.Do(t.Context(), http.MethodPut, host+
		"/x", http.Header{"X-A": {"1"}}, []byte("in")); string(b) != "PUT1" || err != nil {
		t.Errorf("%s %v", b, err)
	}

	if _, err := c.Do(t.Context(), http.MethodGet, host+"/long", nil, nil); err == nil {
		t.Error("a long answer was taken")
	}

	var no *Refusal
	if _, err := c.Do(t.Context(), http.MethodGet, host+
		"/no", nil, nil); !errors.As(err, &no) || no.Code != http.StatusConflict || string(no.Body) != "because\n" {
		t.Errorf("refused: %v", err)
	}

	c.HTTP = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }}}
	if _, err := c.Do(t.Context(), http.MethodGet, host+
		"/x", nil, nil); !errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), host) {
		t.Errorf("no connection: %v", err)
	}
}
