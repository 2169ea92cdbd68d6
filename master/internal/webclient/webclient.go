// Package webclient makes the HTTP clients by which the master calls servers that an administrator
// has named: with short timeouts, without redirects, and with errors that hold no secret.
package webclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"saltern/internal/durable"
)

// maxCA bounds a file of certificates, in bytes.
const maxCA = 1 << 20

// LongestPause bounds the pause for which a server may ask.
const LongestPause = 10 * time.Minute

// TLS returns the settings of TLS. ca is the file of the authorities that count, or "".
func TLS(host, ca string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if ca == "" {
		return c, nil
	}

	pem, _, err := durable.ReadFile(ca, maxCA, durable.Follow)
	if err != nil {
		return nil, fmt.Errorf("read the certificates of ca: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read the certificates of ca: %s has none in PEM", ca)
	}
	return c, nil
}

// New returns a client for a few requests. It follows no redirect: only the administrator chooses
// the address. The caller closes its idle connections.
func New(config *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSClientConfig:        config,
			TLSHandshakeTimeout:    5 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// WithoutURL returns an error of net/http without the URL that it quotes.
func WithoutURL(err error) error {
	var quoting *url.Error
	if errors.As(err, &quoting) {
		return quoting.Err
	}
	return err
}

var errNoHTTP = errors.New("the answer is not valid HTTP, or a proxy refuses the connection")

// WithoutEcho returns an error of net/http without its URL, or errNoHTTP for an error that may quote
// what came from the server: a server that sends back what it gets would bring a secret into the error.
func WithoutEcho(err error) error {
	err = WithoutURL(err)
	var network net.Error
	var certificate *tls.CertificateVerificationError
	known := errors.As(err, &network) || errors.As(err, &certificate) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, http.ErrSchemeMismatch)
	if !known {
		return errNoHTTP
	}
	return err
}

// PauseOf returns the pause for which an answer asks (Retry-After in seconds), at most ten minutes,
// or 0.
func PauseOf(answer *http.Response) time.Duration {
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if err != nil || seconds <= 0 {
		return 0
	}
	return time.Duration(min(seconds, int(LongestPause/time.Second))) * time.Second
}
