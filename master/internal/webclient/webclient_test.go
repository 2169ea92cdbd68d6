package webclient

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"saltern/test/check"
)

// TestNoRedirect: the client stays at the address that the administrator has written.
func TestNoRedirect(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "/other", http.StatusFound)
	}))
	defer s.Close()
	config, err := TLS("", "")
	check.Must(t, err)
	answer, err := New(config).Get(s.URL)
	check.Must(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusFound || asked != 1 {
		t.Errorf("asked %d times, got %d", asked, answer.StatusCode)
	}
}

// TestErrorsHoldNoSecret: neither the URL nor what a server echoes is in an error.
func TestErrorsHoldNoSecret(t *testing.T) {
	err := &url.Error{Op: "Post", URL: "https://x/S3CR3T", Err: errors.New("malformed HTTP response \"S3CR3T\"")}
	if text := WithoutEcho(err).Error(); strings.Contains(text, "S3CR3T") {
		t.Error(text)
	}
}

func TestPauseOf(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "x": 0, "-1": 0, "3": 3 * time.Second, "86400": LongestPause, fmt.Sprint(1 << 62): LongestPause,
	} {
		answer := &http.Response{Header: http.Header{"Retry-After": {text}}}
		if got := PauseOf(answer); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
