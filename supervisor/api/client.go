package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"saltern/internal/localsock"
	"saltern/supervisor/status"
)

// Client talks to the supervisor on the same machine. It is safe for
// concurrent use.
type Client struct {
	socket string
	token  string // tells this client from others, see Setup
	http   localsock.Client
}

// ErrNotRunning means that nobody listens on the socket.
var ErrNotRunning = errors.New("applianced is not running")

// conn notes that the other side has ended the connection: net/http has errors of
// its own for that, which nobody can ask for.
type conn struct {
	net.Conn
	ended atomic.Bool
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.note(err)
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.note(err)
	return n, err
}

func (c *conn) note(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.ended.Store(true)
	}
}

// maxAnswer bounds what is read from the supervisor.
const maxAnswer = 96 << 20

// NewClient gives a client for the socket at path. Nothing is dialled yet.
func NewClient(socket string) *Client {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "unix", socket)
			if err != nil {
				return nil, err
			}
			return &conn{Conn: c}, nil
		},
		MaxIdleConns: 1, IdleConnTimeout: 10 * time.Second,
	}

	return &Client{
		socket: socket,
		token:  newToken(),
		http: localsock.Client{
			MaxAnswer: maxAnswer,
			HTTP:      &http.Client{Transport: t, Timeout: preflightTakes + 20*time.Second},
		},
	}
}

// Status fetches the status document.
func (c *Client) Status(ctx context.Context) (d status.Document, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/status", nil, &d)
	if err == nil && d.Schema != status.Schema {
		err = fmt.Errorf("status document has schema %d, this program knows %d", d.Schema, status.Schema)
	}
	return d, err
}

// Output gives the last lines a service wrote.
func (c *Client) Output(ctx context.Context, service string, lines int) ([]string, error) {
	var a struct{ Lines []string }
	err := c.do(ctx, http.MethodGet, "/v1/services/"+url.PathEscape(service)+"/log?lines="+strconv.Itoa(lines), nil, &a)
	return a.Lines, err
}

// Restart restarts a service.
func (c *Client) Restart(ctx context.Context, service string) error {
	return c.do(ctx, http.MethodPost, "/v1/services/"+url.PathEscape(service)+"/restart", nil, nil)
}

// Reload makes the node start anew with its configuration file.
func (c *Client) Reload(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/v1/reload", nil, nil)
}

// Config gives the text of the configuration file.
func (c *Client) Config(ctx context.Context) ([]byte, error) {
	var a struct{ Text string }
	err := c.do(ctx, http.MethodGet, "/v1/config", nil, &a)
	return []byte(a.Text), err
}

// CheckConfig has a configuration checked without using it.
func (c *Client) CheckConfig(ctx context.Context, text []byte) error {
	return c.do(ctx, http.MethodPost, "/v1/config/check", text, nil)
}

// SetConfig replaces the configuration; a wrong one is refused and changes
// nothing.
func (c *Client) SetConfig(ctx context.Context, text []byte) error {
	return c.do(ctx, http.MethodPut, "/v1/config", text, nil)
}

// answerTakes bounds ordinary requests.
const answerTakes = 10 * time.Second

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	if _, ok := ctx.Deadline(); !ok && !strings.HasPrefix(path, "/v1/setup/") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerTakes)
		defer cancel()
	}

	var used *conn
	ctx = httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { used, _ = i.Conn.(*conn) }})
	b, err := c.http.Do(ctx, method, "applianced"+path,
		http.Header{http.CanonicalHeaderKey(tokenHeader): {c.token}}, body)
	var no *localsock.Refusal
	var op *net.OpError
	switch {
	case err == nil:
	case errors.As(err, &no):
		return refusal(no)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("%w (%s: %w)", ErrNotRunning, c.socket, op.Err)
	case used != nil && used.ended.Load(): // it ended meanwhile, perhaps to start anew
		return fmt.Errorf("%w any more (%s: %w)", ErrNotRunning, c.socket, err)
	default:
		return fmt.Errorf("ask applianced: %w", err)
	}

	if into == nil {
		return nil
	}

	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("answer of applianced: %w", err)
	}

	return nil
}

func refusal(no *localsock.Refusal) error {
	var e struct{ Error string }
	if json.Unmarshal(no.Body, &e) != nil || e.Error == "" {
		e.Error = no.Status
	}
	switch no.Code {
	case http.StatusUnprocessableEntity:
		return &refused{e.Error, ErrConfig}
	case http.StatusConflict:
		return &refused{e.Error, ErrState}
	}
	return errors.New(e.Error)
}

type refused struct {
	text string
	kind error
}

func (r *refused) Error() string        { return r.text }
func (r *refused) Is(target error) bool { return target == r.kind }
