package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"
)

// patience is for an answer.
const patience = 5 * time.Minute

// client is one that sends a request at a time, from an address of its own.
type client struct {
	f     *fleet
	from  string
	token string
	other string // of a log-in that is to end
	job   string // the last that was started
	rand  *rand.Rand
	conn  *net.TCPConn
	in    *bufio.Reader
	wrong time.Time // when the last wrong token or password was sent
}

func newClient(f *fleet, from string, seed uint64) *client {
	return &client{f: f, from: from, rand: rand.New(rand.NewPCG(1, seed))}
}

func (c *client) dial(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.from)}, Timeout: patience}
	conn, err := d.DialContext(ctx, "tcp", c.f.address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.conn, c.in = conn.(*net.TCPConn), bufio.NewReader(conn)
	return nil
}

func (c *client) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// head is a request up to its body, of which it announces so many bytes.
func (c *client) head(method, path, token string, length int) string {
	text := method + " " + path + " HTTP/1.1\r\nHost: api\r\nAccept: application/json\r\n"
	if token != "" {
		text += "X-Auth-Token: " + token + "\r\n"
	}
	if method == http.MethodPost {
		text += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", length)
	}
	return text + "\r\n"
}

// ask sends a request on the connection that is kept and gives the answer.
func (c *client) ask(ctx context.Context, method, path, token, body string) (int, []byte, error) {
	if err := c.dial(ctx); err != nil {
		return 0, nil, err
	}

	c.f.sent.Add(1)
	_ = c.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c.conn, c.head(method, path, token, len(body))+body); err != nil {
		return 0, nil, fmt.Errorf("send: %w", err)
	}

	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer: %w", err)
	}

	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer: %w", err)
	}

	if r.Close {
		c.hangUp()
	}

	return r.StatusCode, text, r.Body.Close()
}

// leave sends a part of a request and hangs up; with reset at once.
func (c *client) leave(ctx context.Context, text string, reset bool) error {
	c.hangUp()
	if err := c.dial(ctx); err != nil {
		return err
	}
	defer c.hangUp()

	if _, err := io.WriteString(c.conn, text); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if reset {
		c.f.maybe.Add(1)
		_ = c.conn.SetLinger(0)
		return nil
	}

	c.f.sent.Add(1)
	return nil
}

// logIn gives a token; "" if there is none.
func (c *client) logIn(ctx context.Context, password string) (string, error) {
	code, body, err := c.ask(ctx, "POST", "/login", "",
		`{"username": "ann", "password": "`+password+`", "eauth": "sharedsecret"}`)
	if err != nil {
		return "", err
	}

	kind := "log-in"
	if password != "right" {
		kind = "wrong password"
	}

	c.f.count.add(kind, code)
	if code != http.StatusOK {
		return "", nil
	}

	var v struct{ Return []struct{ Token string } }
	if json.Unmarshal(body, &v) != nil || len(v.Return) != 1 {
		return "", fmt.Errorf("log in: the answer is %.200s", body)
	}

	return v.Return[0].Token, nil
}

// readEvents reads some events and hangs up.
func (c *client) readEvents(ctx context.Context) error {
	c.hangUp()
	if err := c.dial(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer c.hangUp()

	conn := c.conn
	c.f.sent.Add(1)
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, c.head("GET", "/events", c.token, 0)); err != nil {
		return fmt.Errorf("send: %w", err)
	}

	line, err := c.in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}

	code := 0
	if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &code); err != nil {
		return fmt.Errorf("read the answer: %q: %w", line, err)
	}

	c.f.count.add("/events", code)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	until := time.Now().Add(time.Duration(c.rand.IntN(2000)) * time.Millisecond)
	_ = conn.SetReadDeadline(until)
	for time.Now().Before(until) && ctx.Err() == nil {
		_, err := c.in.ReadString('\n')
		if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the events ended: %w", err)
		}
	}

	return nil
}

// mayErr reports whether the client may show something wrong: an address may err once in
// two seconds.
func (c *client) mayErr() bool {
	if time.Since(c.wrong) < 10*time.Second {
		return false
	}
	c.wrong = time.Now()
	return true
}

func (c *client) randomToken() string {
	return strings.Repeat(fmt.Sprintf("%016x", c.rand.Uint64()), 4)
}
