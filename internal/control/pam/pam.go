// Package pam is the contract between a master and the helper that checks passwords of
// local accounts for it, as root: one connection to a unix socket for each, with a line of
// JSON each way. The kernel says who connects.
package pam

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Socket is where systemd listens for the helper.
const Socket = "/run/saltern-pam.sock"

// Bounds of what is said, and of how long that may take.
const (
	maxRequest = 4 << 10
	maxAnswer  = 64 << 10
	Time       = 15 * time.Second
)

type request struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// Answer is the result of the helper. Why says what is wrong with the account or the
// request, for the master's log; it is not for who wants to log in. Fault says that
// the password could not be looked at.
type Answer struct {
	OK     bool     `json:"ok"`
	Groups []string `json:"groups,omitempty"`
	Why    string   `json:"why,omitempty"`
	Fault  bool     `json:"fault,omitempty"`
}

// Ask has the helper at socket check a password. The error wraps fs.ErrNotExist where there is
// no socket.
func Ask(ctx context.Context, socket, user, password string) (Answer, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, Time)
	defer cancel()

	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return Answer{}, fmt.Errorf("reach the helper for passwords of local accounts: %w", err)
	}
	defer c.Close()

	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	var a Answer
	if err = send(c, request{user, password}, maxRequest); err == nil {
		err = receive(c, &a, maxAnswer)
	}

	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("it has not answered in %s: %w", time.Since(began).Round(time.Second), context.Cause(ctx))
	}

	if err != nil {
		return Answer{}, fmt.Errorf("ask the helper for passwords of local accounts (journalctl -u 'saltern-pam@*'): %w",
			err)
	}

	return a, nil
}

// Receive reads the request of a connection.
func Receive(c net.Conn) (user, password string, err error) {
	var r request
	if err := receive(c, &r, maxRequest); err != nil {
		return "", "", fmt.Errorf("read the request: %w", err)
	}
	return r.User, r.Password, nil
}

// Reply answers it.
func Reply(c net.Conn, a Answer) error {
	if err := send(c, a, maxAnswer); err != nil {
		return fmt.Errorf("answer the request: %w", err)
	}
	return nil
}

func send(w io.Writer, v any, most int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) >= most {
		return errors.New("it is too long")
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

func receive(r io.Reader, v any, most int64) error {
	b, err := bufio.NewReader(io.LimitReader(r, most)).ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
