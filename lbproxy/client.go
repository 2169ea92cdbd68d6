package lbproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"saltern/internal/localsock"
)

// Client talks to the admin socket of a proxy. Safe for concurrent use.
type Client struct {
	socket localsock.Client
	path   string
}

// NewClient prepares a client for the unix socket at path; nothing is opened
// until a method is called.
func NewClient(path string) *Client {
	var d net.Dialer
	return &Client{
		path: path,
		socket: localsock.Client{
			MaxAnswer: 16 << 20,
			HTTP: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
				DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) },
				DisableKeepAlives: true,
			}},
		},
	}
}

// Status fetches the state of the proxy.
func (c *Client) Status(ctx context.Context) (st Status, err error) {
	err = c.do(ctx, http.MethodGet, "status", nil, &st)
	return st, err
}

// Metrics fetches the Prometheus text.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	return c.send(ctx, http.MethodGet, "metrics", nil)
}

// Drain: see [Proxy.Drain].
func (c *Client) Drain(ctx context.Context, backend string) error {
	return c.post(ctx, "drain", adminRequest{Backend: backend})
}

// Undrain: see [Proxy.Undrain].
func (c *Client) Undrain(ctx context.Context, backend string) error {
	return c.post(ctx, "undrain", adminRequest{Backend: backend})
}

// Maint: see [Proxy.Maint].
func (c *Client) Maint(ctx context.Context, backend string) error {
	return c.post(ctx, "maint", adminRequest{Backend: backend})
}

// Weight: see [Proxy.Weight].
func (c *Client) Weight(ctx context.Context, backend string, weight int) error {
	return c.post(ctx, "weight", adminRequest{Backend: backend, Weight: weight})
}

// Cut closes the sessions of a backend, of one frontend or of all if frontend
// is empty, and returns how many.
func (c *Client) Cut(ctx context.Context, backend, frontend string) (int, error) {
	var r adminReply
	err := c.do(ctx, http.MethodPost, "cut", adminRequest{Backend: backend, Frontend: frontend}, &r)
	return r.Cut, err
}

// Add: see [Proxy.AddBackend].
func (c *Client) Add(ctx context.Context, b Backend) error {
	return c.post(ctx, "add", adminRequest{Add: &b})
}

// Remove: see [Proxy.RemoveBackend].
func (c *Client) Remove(ctx context.Context, backend string, force bool) error {
	return c.post(ctx, "remove", adminRequest{Backend: backend, Force: force})
}

func (c *Client) post(ctx context.Context, what string, req adminRequest) error {
	return c.do(ctx, http.MethodPost, what, req, &adminReply{})
}

func (c *Client) send(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	b, err := c.socket.Do(ctx, method, "lb/"+path, nil, body)
	if err == nil || errors.As(err, new(*localsock.Refusal)) {
		return b, err
	}
	return nil, fmt.Errorf("ask the load balancer at %s: %w", c.path, err)
}

func (c *Client) do(ctx context.Context, method, what string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}

	b, err := c.send(ctx, method, "v1/"+what, body)
	if no, ok := errors.AsType[*localsock.Refusal](err); ok {
		var r adminReply
		if json.Unmarshal(no.Body, &r) != nil || r.Error == "" {
			r.Error = no.Status
		}

		// The two that a caller branches on keep their identity.
		switch no.Code {
		case http.StatusNotFound:
			return remoteError{r.Error, errNoBackend}
		case http.StatusConflict:
			return remoteError{r.Error, errExists}
		}

		return errors.New(r.Error)
	}

	if err != nil {
		return err
	}

	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("decode answer of the load balancer: %w", err)
	}

	return nil
}

type remoteError struct {
	text string
	kind error
}

func (e remoteError) Error() string { return e.text }
func (e remoteError) Unwrap() error { return e.kind }
