package send

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/form"
	"saltern/master/internal/notify/rules"
	"saltern/master/internal/webclient"
	"saltern/test/check"
)

func testMessage() *alert.Message {
	a := alert.Tried("ops", "root", "n1", time.Now())
	return &alert.Message{ID: alert.Digest("m"), Rule: "ops", To: "ops/1", Alerts: []alert.Alert{a}}
}

func TestWeb(t *testing.T) {
	var got *http.Request
	var body []byte
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()

	to := &rules.Web{URL: rules.NewSecret(server.URL + "/T0/SECRET"), Token: rules.NewSecret("TOKEN"), Form: rules.Slack}
	err := New(&rules.Destination{Web: to}).Send(t.Context(), testMessage())
	if err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Fatal("a certificate that nobody knows:", err)
	}

	to.CA = filepath.Join(t.TempDir(), "ca.pem")
	check.Must(t, os.WriteFile(to.CA, certificate(server.Certificate()), 0o600))
	check.Must(t, New(&rules.Destination{Web: to}).Send(t.Context(), testMessage()))
	if got.URL.Path != "/T0/SECRET" || got.Header.Get("Authorization") != "Bearer TOKEN" ||
		got.Header.Get(form.KeyHeader) != testMessage().ID || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", got.URL, got.Header)
	}
	if !bytes.Contains(body, []byte("test of the rule ops")) {
		t.Errorf("%s", body)
	}
}

func certificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// No answer but one from 200 to 299 counts as accepted, a redirect is not followed, and what the
// answer says is bounded.
func TestWebAnswers(t *testing.T) {
	reached := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer other.Close()

	for _, tt := range []struct {
		name    string
		answer  http.HandlerFunc
		refused bool
		later   time.Duration
	}{
		{name: "500", answer: status(500)},
		{name: "404", answer: status(404)},
		{name: "400", answer: status(400), refused: true},
		{name: "redirect", answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}},
		{name: "retry later", later: 30 * time.Second, answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(429)
		}},
		{name: "retry in a year", later: webclient.LongestPause, answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "31536000")
			w.WriteHeader(503)
		}},
		{name: "404 that quotes the request", answer: echo(404)},
		{name: "400 that quotes the request", refused: true, answer: echo(400)},
		{name: "503 that quotes the request", answer: echo(503)},
		{name: "long answer", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = w.Write(bytes.Repeat([]byte("\x1b[31mx\n"), 1<<20))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(tt.answer)
			defer server.Close()
			to := &rules.Web{
				URL:   rules.NewSecret(server.URL + "/SECRET?key=SECRET"),
				Form:  rules.Generic,
				Token: rules.NewSecret("SECRET"),
			}
			err := New(&rules.Destination{Web: to}).Send(t.Context(), testMessage())
			if err == nil || errors.Is(err, ErrRefused) != tt.refused {
				t.Error(err)
			}
			var later *LaterError
			if errors.As(err, &later) != (tt.later > 0) || later != nil && later.After != tt.later {
				t.Errorf("%+v", later)
			}
			if text := err.Error(); len(text) > 500 || strings.ContainsAny(text, "\x1b\n") || strings.Contains(text, "SECRET") {
				t.Errorf("%.600q", text)
			}
		})
	}
	if reached {
		t.Error("a redirect was followed")
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// echo answers with the request.
func echo(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		_ = r.Write(w)
	}
}

// A server that is no web hook, and sends back what it gets, does not bring secrets into the error.
func TestWebEchoes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.CopyN(c, c, 40)
			c.Close()
		}
	}()

	for _, path := range []string{"/SECRET", "/?SECRET"} {
		to := &rules.Web{URL: rules.NewSecret("http://" + l.Addr().String() + path), Token: rules.NewSecret("SECRET")}
		err := New(&rules.Destination{Web: to}).Send(t.Context(), testMessage())
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Error(err)
		}
	}
}

// A destination of no kind is no reason to end the process.
func TestNoKind(t *testing.T) {
	if err := New(&rules.Destination{Name: "ops/1"}).Send(t.Context(), testMessage()); err == nil {
		t.Error("a message to nowhere counts as sent")
	}
}

// A web hook that hangs is given up, and one that is not there as well; neither error has the URL.
func TestWebHangs(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for _, url := range []string{server.URL + "/SECRET", "http://127.0.0.1:1/SECRET", "http://[::1/SECRET"} {
		to := &rules.Web{URL: rules.NewSecret(url)}
		err := New(&rules.Destination{Web: to}).Send(ctx, testMessage())
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Error(err)
		}
	}
}
