package request

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// parker is an Account whose owner can do without his worker for a while, as those
// of package zmtp can.
type parker interface{ Park() (resume func()) }

// Park calls wait, which may take as long as the sender has patience. Meanwhile the
// request costs its connection, its packed load and a goroutine, and no worker of the
// port: c.Load is nil until Park returns, and decoded anew then. The time of wait does
// not count as that of a request at work (see Server.Oldest).
//
// asked ends when the sender's connection does: nobody needs the answer any more. The
// error is that of wait, or of the decoding.
//
// The time that a request may take (Config.Timeout) goes on; who parks sets a time of
// his own for the work that follows.
func (c *Call) Park(ctx context.Context, wait func(asked context.Context) error) error {
	asked, stop := WhileAsked(context.WithoutCancel(ctx))
	defer stop()

	if c.park == nil {
		return wait(asked)
	}

	resume := c.park()
	c.Load = nil
	err := wait(asked)
	resume()

	if err != nil {
		return err
	}

	c.Load, err = c.reload()
	return err
}

// Size is what a request that is parked takes, in bytes and about.
func (c *Call) Size() int { return len(c.body) + parkedSize }

// parkedSize is about what a goroutine that waits takes, and what belongs to its
// connection.
const parkedSize = 16 << 10

// parkable lets a call be parked: what body holds is its load.
func (s *Server) parkable(c *Call, body []byte, account Account) {
	c.body = body
	c.park = func() (resume func()) {
		s.oldest.endRequest(c.token)
		again := func() {}
		if p, ok := account.(parker); ok {
			again = p.Park()
		}
		return func() {
			again()
			c.token = s.oldest.startRequest(s.cfg.Now())
		}
	}
}

// reload decodes the load once more. It is not counted (Account.Take): few requests
// go on at a time, and each was counted when it came.
func (c *Call) reload() (*value.Map, error) {
	v, err := msgpack.Decode(c.body, msgpack.DefaultLimits)
	if err != nil {
		return nil, fmt.Errorf("decode a request again: %w", err)
	}
	load, ok := v.(*value.Map)
	if !ok {
		return nil, errors.New("decode a request again: it is not a map")
	}

	load.Delete("nonce")
	load.Delete("tok")
	return load, nil
}
