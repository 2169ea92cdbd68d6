package request

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// parker is an Account whose owner can give up his worker for a while, as those of package zmtp
// can.
type parker interface{ Park() (resume func()) }

// Park calls wait, which may take as long as the sender has patience. Meanwhile the request costs
// its connection, its packed load and a goroutine, but no worker of the port. c.Load is nil until
// Park returns, and is decoded again then. The time of wait does not count as work (see
// Server.Oldest).
//
// asked ends when the sender's connection does: nobody needs the answer any more. The error comes
// from wait, or from decoding.
//
// The time limit of the request (Config.Timeout) goes on. A caller of Park sets its own limit for
// the work that follows.
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

// Size returns about how many bytes a parked request takes.
func (c *Call) Size() int { return len(c.body) + parkedSize }

// parkedSize is about how many bytes a waiting goroutine takes together with its connection.
const parkedSize = 16 << 10

// parkable allows a call to be parked; body holds its packed load.
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

// reload decodes the load once more. It is not counted (Account.Take): few requests continue at a
// time, and each was counted when it came.
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
