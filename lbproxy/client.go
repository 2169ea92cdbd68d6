package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"saltern/internal/localsock"
	"saltern/internal/rpc"
)

// Client talks to the admin socket of a proxy. It is safe for concurrent use.
type Client struct {
	rpc  rpc.Client
	path string
}

// maxAnswer is how many bytes of an answer the client reads at most.
const maxAnswer = 16 << 20

// NewClient returns a client for the unix socket at path. It opens nothing before a method is
// called.
func NewClient(path string) *Client {
	var d net.Dialer
	return &Client{
		path: path,
		rpc: rpc.Client{
			Host: "lb",
			Socket: localsock.Client{
				MaxAnswer: maxAnswer,
				HTTP: &http.Client{Timeout: adminTakes + rpc.Slack, Transport: &http.Transport{
					DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
						return d.DialContext(ctx, "unix", path)
					},
					DisableKeepAlives: true,
				}},
			},
		},
	}
}

// Status fetches the state of the proxy.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return call(ctx, c, readStatus, rpc.None{})
}

// Metrics fetches the Prometheus text.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	text, err := c.rpc.Socket.Do(ctx, http.MethodGet, "lb/metrics", nil, nil)
	if err == nil || errors.As(err, new(*localsock.Refusal)) {
		return text, err
	}
	return nil, c.unheard(err)
}

// Drain drains a backend, see [Proxy.Drain].
func (c *Client) Drain(ctx context.Context, backend string) error {
	return c.order(ctx, drainBackend, adminRequest{Backend: backend})
}

// Undrain ends the draining or the maintenance of a backend, see [Proxy.Undrain].
func (c *Client) Undrain(ctx context.Context, backend string) error {
	return c.order(ctx, undrainBackend, adminRequest{Backend: backend})
}

// Maint puts a backend into maintenance, see [Proxy.Maint].
func (c *Client) Maint(ctx context.Context, backend string) error {
	return c.order(ctx, maintBackend, adminRequest{Backend: backend})
}

// Weight sets the weight of a backend, see [Proxy.Weight].
func (c *Client) Weight(ctx context.Context, backend string, weight int) error {
	return c.order(ctx, weighBackend, adminRequest{Backend: backend, Weight: weight})
}

// Cut closes the sessions of a backend: the sessions of one frontend, or all if frontend is "". It
// returns the number of closed sessions.
func (c *Client) Cut(ctx context.Context, backend, frontend string) (int, error) {
	closed, err := call(ctx, c, cutSessions, adminRequest{Backend: backend, Frontend: frontend})
	return closed.Cut, err
}

// Add adds a backend, see [Proxy.AddBackend].
func (c *Client) Add(ctx context.Context, b Backend) error {
	return c.order(ctx, addBackend, adminRequest{Add: &b})
}

// Remove removes a backend, see [Proxy.RemoveBackend].
func (c *Client) Remove(ctx context.Context, backend string, force bool) error {
	return c.order(ctx, removeBackend, adminRequest{Backend: backend, Force: force})
}

func (c *Client) order(ctx context.Context, m *rpc.Method[adminRequest, rpc.None], q adminRequest) error {
	_, err := call(ctx, c, m, q)
	return err
}

// call asks the proxy for a method. A refusal is an [*rpc.Error].
func call[In, Out any](ctx context.Context, c *Client, m *rpc.Method[In, Out], in In) (Out, error) {
	out, err := rpc.Call(ctx, &c.rpc, m, in)
	if err == nil || errors.As(err, new(*rpc.Error)) {
		return out, err
	}
	if unreadable, ok := errors.AsType[*rpc.AnswerError](err); ok {
		return out, fmt.Errorf("decode answer of the load balancer: %w", unreadable)
	}
	return out, c.unheard(err)
}

func (c *Client) unheard(err error) error {
	return fmt.Errorf("ask the load balancer at %s: %w", c.path, err)
}
