// Package pam is the contract between a master and its helper, which runs as root and checks
// passwords of local accounts. For each check the master opens one connection to a unix socket;
// request and answer are a line of JSON each. The kernel tells the helper which user connects.
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

// Bounds of a request and an answer in bytes, and of the time for both.
const (
	maxRequest = 4 << 10
	maxAnswer  = 64 << 10
	Time       = 15 * time.Second
)

type request struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// Answer is the helper's result. Why is the fault of the account or the request; only the master's
// log may contain it, not the answer to the user who logs in. Fault means that the helper could not
// check the password.
type Answer struct {
	OK     bool     `json:"ok"`
	Groups []string `json:"groups,omitempty"`
	Why    string   `json:"why,omitempty"`
	Fault  bool     `json:"fault,omitempty"`
}

// Ask asks the helper at socket to check a password. If there is no socket, the error wraps
// fs.ErrNotExist.
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

// Receive reads the request from a connection, and returns the user's name and password.
func Receive(c net.Conn) (user, password string, err error) {
	var r request
	if err := receive(c, &r, maxRequest); err != nil {
		return "", "", fmt.Errorf("read the request: %w", err)
	}
	return r.User, r.Password, nil
}

// Reply sends the answer to a request.
func Reply(c net.Conn, a Answer) error {
	if err := send(c, a, maxAnswer); err != nil {
		return fmt.Errorf("answer the request: %w", err)
	}
	return nil
}

func send(w io.Writer, v any, maxBytes int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) >= maxBytes {
		return errors.New("it is too long")
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

func receive(r io.Reader, v any, maxBytes int64) error {
	b, err := bufio.NewReader(io.LimitReader(r, maxBytes)).ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
