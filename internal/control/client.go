package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"

	"saltern/internal/localsock"
	"saltern/internal/rpc"
)

// maxAnswer bounds an answer in bytes. It is enough for one line for each minion of a very large
// master.
const maxAnswer = 64 << 20

// errStranger means that the process that listens on a socket runs under an unexpected user.
var errStranger = errors.New("the socket is another user's")

// The programs behind sockets, as errors name them.
const (
	master     = "master"
	supervisor = "supervisor"
)

// Client asks a master on its control socket. It is safe for concurrent use.
type Client struct {
	rpc rpc.Client
}

// NewClient returns a client for the socket at path. The user uid or root must listen there. The
// client connects when a method is called.
func NewClient(path string, uid int) *Client { return &Client{newClient(master, path, uid, maxAnswer)} }

// newClient returns a client for the socket of a program, on which the user uid or root must
// listen. It reads at most answerLimit bytes of an answer.
func newClient(program, path string, uid int, answerLimit int64) rpc.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", path)
		if err != nil {
			return nil, err
		}

		owner, err := peerUID(c)
		if err == nil && owner != uid && owner != 0 {
			err = fmt.Errorf("%w: user %d listens", errStranger, owner)
		}

		if err != nil {
			_ = c.Close()
			return nil, err
		}

		return c, nil
	}

	return rpc.Client{
		Host: program,
		Socket: localsock.Client{
			HTTP:      &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}},
			MaxAnswer: answerLimit,
		},
	}
}

// Minions returns what the master knows about its minions. If finger is set, it includes the
// fingerprints of their keys.
func (c *Client) Minions(ctx context.Context, finger bool) (Minions, error) {
	return ask(ctx, &c.rpc, listMinions, finger)
}

// RemoveMember permanently removes a master from the cluster, and replaces the secret and the keys
// that the master knew. If there is no such master, the error matches [ErrNoSuchMember].
func (c *Client) RemoveMember(ctx context.Context, r Removal) error {
	_, err := ask(ctx, &c.rpc, removeMember, r)
	return err
}

// StageSecret creates the cluster's next secret, if there is none yet.
func (c *Client) StageSecret(ctx context.Context) error {
	_, err := ask(ctx, &c.rpc, stageSecret, rpc.None{})
	return err
}

// CommitSecret makes the next secret the present one. finger is the fingerprint of the next secret,
// see [Secrets.SecretFinger].
func (c *Client) CommitSecret(ctx context.Context, finger string) error {
	_, err := ask(ctx, &c.rpc, commitSecret, commitRequest{finger})
	return err
}

// SyncHistory has the master write to its disk what the history of runs has in memory. A master of an earlier
// version does not know the method.
func (c *Client) SyncHistory(ctx context.Context) error {
	_, err := ask(ctx, &c.rpc, syncHistory, rpc.None{})
	return err
}

// ask calls a method of the program behind a socket and returns the method's result.
func ask[In, Out any](ctx context.Context, c *rpc.Client, m *rpc.Method[In, Out], in In) (Out, error) {
	out, err := rpc.Call(ctx, c, m, in)
	if err == nil {
		return out, nil
	}

	if refusal, ok := errors.AsType[*rpc.Error](err); ok {
		refusal.Text = oneLine(refusal.Text)
		return out, refusal
	}
	if unreadable, ok := errors.AsType[*rpc.AnswerError](err); ok {
		return out, fmt.Errorf("the %s's answer cannot be read: %w", c.Host, unreadable)
	}
	return out, unheard(c.Host, err)
}

// unheard returns an error for people when a program was not reached: it says that the program does
// not run, or does not answer, and does not mention sockets.
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

// silences returns the errors of a program that runs but does not answer, or that ended during the
// call. EAGAIN means that it accepts no connections, and its queue is full (unix(7)).
func silences() []error {
	return []error{
		context.DeadlineExceeded, os.ErrDeadlineExceeded, io.EOF, io.ErrUnexpectedEOF,
		syscall.EAGAIN, syscall.ECONNRESET, syscall.EPIPE,
	}
}

// silence is an error with a text for people. It wraps the cause.
type silence struct {
	text string
	err  error
}

func (s *silence) Error() string { return "the " + s.text }
func (s *silence) Unwrap() error { return s.err }
