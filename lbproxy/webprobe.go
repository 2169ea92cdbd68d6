package lbproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"saltern/internal/printable"
	"saltern/internal/proxyproto"
)

// webProbe asks salt-api whether it is ready: GET /readyz, with TLS if the port speaks TLS. The
// request holds no secret, so webProbe does not verify the certificate, just as the checks of other
// ports do not verify masters. Clients verify the server themselves. Only one checker uses a
// webProbe.
type webProbe struct {
	addr         string
	plain        bool // whether the port is without TLS
	checksOnConn int  // number of checks on the current connection
	transport    *http.Transport
}

const (
	maxReadyz   = 4 << 10
	readyzStays = 4 // number of checks on one connection; the next check dials, to test that the server accepts
)

func newWebProbe(addr string, header bool, dial func(ctx context.Context, addr string) (net.Conn, error)) *webProbe {
	return &webProbe{addr: addr, transport: &http.Transport{
		MaxIdleConns:           1,
		IdleConnTimeout:        10 * time.Second,
		MaxResponseHeaderBytes: maxReadyz,
		TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true,
			ClientSessionCache: tls.NewLRUClientSessionCache(1),
		},
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			c, err := dial(ctx, addr)
			if err != nil {
				return nil, connectError{err}
			}

			if header {
				if _, err := io.WriteString(c, proxyproto.Local); err != nil {
					_ = c.Close()
					return nil, fmt.Errorf("send PROXY header: %w", markShut(err))
				}
			}

			return c, nil
		},
	}}
}

func (w *webProbe) close() { w.transport.CloseIdleConnections() }

func (w *webProbe) probe(ctx context.Context) error {
	w.checksOnConn++
	if w.checksOnConn >= readyzStays {
		w.checksOnConn = 0
		w.transport.CloseIdleConnections()
	}

	err := w.askReadyz(ctx)
	if w.schemeMistaken(err) { // an administrator has changed the server's option disable_ssl
		w.plain = !w.plain
		err = w.askReadyz(ctx)
	}

	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", errSilent, err)
	}

	return err
}

// schemeMistaken reports whether the error may come from speaking TLS to a server without it, or the
// reverse.
func (w *webProbe) schemeMistaken(err error) bool {
	if w.plain {
		return errors.Is(err, errProtocol)
	}
	var other tls.RecordHeaderError
	return errors.As(err, &other)
}

func (w *webProbe) askReadyz(ctx context.Context) error {
	scheme := "https"
	if w.plain {
		scheme = "http"
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+w.addr+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("ask /readyz: %w", err)
	}

	res, err := w.transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("ask /readyz: %w", markShut(err))
	}

	text, _ := io.ReadAll(io.LimitReader(res.Body, maxReadyz))
	_ = res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusServiceUnavailable:
		return fmt.Errorf("%w: %s", errAPIUnready, printable.Brief(strings.TrimSpace(string(text)), maxTrouble))
	}

	return fmt.Errorf("%w: /readyz answers %d", errProtocol, res.StatusCode)
}
