package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"syscall"

	"saltern/internal/localsock"
)

// maxAnswer bounds an answer in bytes: a line for each of
// more minions than a master has.
const maxAnswer = 64 << 20

// errStranger says that somebody else listens on a socket than who should.
var errStranger = errors.New("the socket is another user's")

// Whom a socket is of, as errors name them.
const (
	master     = "master"
	supervisor = "supervisor"
)

// Client asks a master on its control socket. It is safe for concurrent use; the
// context of a call bounds it.
type Client struct {
	socket localsock.Client
}

// NewClient prepares a client for the socket at path, on which the user uid or
// root must listen. Nothing is opened until a method is called.
func NewClient(path string, uid int) *Client { return &Client{newSocket(path, uid, maxAnswer)} }

// newSocket is a client for a socket on which the user uid or root must listen.
func newSocket(path string, uid int, most int64) localsock.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", path)
		if err != nil {
			return nil, err
		}

		who, err := peerUID(c)
		if err == nil && who != uid && who != 0 {
			err = fmt.Errorf("%w: user %d listens", errStranger, who)
		}

		if err != nil {
			_ = c.Close()
			return nil, err
		}

		return c, nil
	}

	return localsock.Client{
		HTTP:      &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}},
		MaxAnswer: most,
	}
}

// Minions returns what the master knows of its minions, with the fingerprints
// of their keys if finger is set.
func (c *Client) Minions(ctx context.Context, finger bool) (m Minions, err error) {
	err = c.do(ctx, http.MethodGet, "minions?finger="+strconv.FormatBool(finger), nil, &m)
	return m, err
}

// RemoveMember takes a master out of the cluster, for good, and replaces the
// secret and the keys that it knew. The error matches [ErrNoSuchMember] if there
// is none.
func (c *Client) RemoveMember(ctx context.Context, r Removal) error {
	return c.post(ctx, "remove", verb{Removal: r})
}

// StageSecret makes the secret that is to follow, if there is none yet.
func (c *Client) StageSecret(ctx context.Context) error { return c.post(ctx, "secret_next", verb{}) }

// CommitSecret puts the next secret, named by [Secrets.SecretFinger], in the
// place of the present one.
func (c *Client) CommitSecret(ctx context.Context, finger string) error {
	return c.post(ctx, "secret_commit", verb{Finger: finger})
}

func (c *Client) post(ctx context.Context, what string, v verb) error {
	ctx, cancel := context.WithTimeout(ctx, verbTakes)
	defer cancel()
	return c.do(ctx, http.MethodPost, "cluster/"+what, v, &struct{}{})
}

func (c *Client) do(ctx context.Context, method, what string, in, out any) error {
	return ask(ctx, c.socket, master, method, what, in, out)
}

// ask asks whom a socket is of.
func ask(ctx context.Context, socket localsock.Client, whom, method, what string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}

	b, err := socket.Do(ctx, method, whom+"/v1/"+what, nil, body)
	if no, ok := errors.AsType[*localsock.Refusal](err); ok {
		refused := Error{Code: CodeFailed, Text: no.Status}
		_ = json.Unmarshal(no.Body, &refused) // else the status must do
		refused.Text = line(refused.Text)
		return &refused
	}

	if err != nil {
		return unheard(whom, err)
	}

	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("the %s's answer cannot be read: %w", whom, err)
	}

	return nil
}

// unheard words why a program was not heard, for whoever asked for something: that it
// does not run, or does not answer, and nothing of sockets.
func unheard(whom string, err error) error {
	is := func(target error) bool { return errors.Is(err, target) }
	op, ok := errors.AsType[*net.OpError](err)
	switch {
	case ok && op.Op == "dial" && (is(syscall.ECONNREFUSED) || is(fs.ErrNotExist)):
		return &silence{whom + " of this node does not run", err}
	case slices.ContainsFunc(silences(), is):
		return &silence{whom + " of this node does not answer", err}
	}
	return fmt.Errorf("ask the %s: %w", whom, err)
}

// silences are the errors of asking a program that runs and says nothing, or ended meanwhile.
// EAGAIN: it takes no connections, and as many wait as may (unix(7)).
func silences() []error {
	return []error{
		context.DeadlineExceeded, os.ErrDeadlineExceeded, io.EOF, io.ErrUnexpectedEOF,
		syscall.EAGAIN, syscall.ECONNRESET, syscall.EPIPE,
	}
}

// silence is an error with words of its own; what happened is in its chain.
type silence struct {
	text string
	err  error
}

func (s *silence) Error() string { return "the " + s.text }
func (s *silence) Unwrap() error { return s.err }
