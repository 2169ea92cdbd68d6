package send

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"saltern/internal/release"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/form"
	"saltern/master/internal/notify/rules"
)

// longestPause bounds the pause for which a destination may ask.
const longestPause = 10 * time.Minute

// web posts messages to a web hook.
type web struct{ to *rules.Web }

// Send posts a message. A web hook accepts it by a status from 200 to 299. Send follows no
// redirect: only the administrator chooses the address.
func (w *web) Send(ctx context.Context, m *alert.Message) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	request, err := w.request(ctx, m)
	if err != nil {
		return err
	}

	config, err := tlsConfig("", w.to.CA)
	if err != nil {
		return err
	}
	client := w.client(config)
	defer client.CloseIdleConnections()

	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("post to the web hook: %w", withoutEcho(withoutURL(err)))
	}
	defer answer.Body.Close()

	return judgeAnswer(answer)
}

// client returns a client for one request. Messages are rare, so no connection is kept.
func (w *web) client(config *tls.Config) *http.Client {
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

func (w *web) request(ctx context.Context, m *alert.Message) (*http.Request, error) {
	text, err := w.to.URL.Read()
	if err != nil {
		return nil, err
	}
	to, err := rules.ParseURL(text)
	if err != nil {
		return nil, fmt.Errorf("read the url of a web hook: %w", err)
	}
	body, err := form.Body(m, w.to.Form)
	if err != nil {
		return nil, err
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a request for a web hook: %w", withoutURL(err))
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Saltern/"+release.Version())
	request.Header.Set(form.KeyHeader, m.ID)
	if !w.to.Token.IsSet() {
		return request, nil
	}

	token, err := w.to.Token.Read()
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return request, nil
}

// withoutURL returns an error of net/http without the URL that it quotes.
func withoutURL(err error) error {
	var quoting *url.Error
	if errors.As(err, &quoting) {
		return quoting.Err
	}
	return err
}

var errNoHTTP = errors.New("the answer is not valid HTTP, or a proxy refuses the connection")

// withoutEcho returns an error of net/http, or errNoHTTP for an error that may quote what came from
// the server: a server that sends back what it gets would bring the URL into the error.
func withoutEcho(err error) error {
	var network net.Error
	var certificate *tls.CertificateVerificationError
	known := errors.As(err, &network) || errors.As(err, &certificate) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, http.ErrSchemeMismatch)
	if !known {
		return errNoHTTP
	}
	return err
}

// judgeAnswer returns nil for an answer that accepts a message. Its error does not quote the body:
// many servers name the path in it, which may be secret.
func judgeAnswer(answer *http.Response) error {
	status := answer.StatusCode
	err := fmt.Errorf("the web hook answers with %d %s", status, http.StatusText(status))
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		return fmt.Errorf("the web hook answers with %d, a redirect, which is not followed: set url to the address that counts", status)
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		seconds, bad := strconv.Atoi(answer.Header.Get("Retry-After"))
		if bad == nil && seconds > 0 {
			return &LaterError{Err: err, After: min(time.Duration(seconds)*time.Second, longestPause)}
		}
	}
	return err
}
