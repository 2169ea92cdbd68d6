package lbproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Client talks to the admin socket of a proxy. Safe for concurrent use.
type Client struct {
	http *http.Client
	path string
}

// NewClient prepares a client for the unix socket at path; nothing is opened
// until a method is called.
func NewClient(path string) *Client {
	var d net.Dialer
	return &Client{path: path, http: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) },
		DisableKeepAlives: true,
	}}}
}

// Status fetches the state of the proxy.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var st Status
	err := c.do(ctx, http.MethodGet, "status", nil, &st)
	return st, err
}

// Metrics fetches the Prometheus text.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	resp, err := c.send(ctx, http.MethodGet, "http://lb/metrics", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, 16<<20))
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

func (c *Client) send(ctx context.Context, method, url string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, fmt.Errorf("prepare request: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the load balancer at %s: %w", c.path, err)
	}
	return resp, nil
}

func (c *Client) do(ctx context.Context, method, what string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	resp, err := c.send(ctx, method, "http://lb/v1/"+what, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("read answer of the load balancer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		var r adminReply
		if json.Unmarshal(b, &r) != nil || r.Error == "" {
			r.Error = resp.Status
		}
		// The two that a caller branches on keep their identity.
		switch resp.StatusCode {
		case http.StatusNotFound:
			return remoteError{r.Error, ErrNoBackend}
		case http.StatusConflict:
			return remoteError{r.Error, ErrExists}
		}
		return errors.New(r.Error)
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
