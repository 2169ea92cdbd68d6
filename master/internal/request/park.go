package request

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// parker is an Account whose sender's worker can be given to other requests for a while. The accounts
// of package zmtp can do that.
type parker interface{ Park() (resume func()) }

// Park calls wait, which may wait as long as the sender does. Meanwhile the request occupies its
// connection, its packed load and a goroutine, but no worker of the port. c.Load is nil during wait,
// and is decoded again after it. The time of wait does not count as work (see Server.Oldest).
//
// The context asked ends with the sender's connection: then nobody needs the answer any more. Park
// returns the error of wait, or an error that says that decoding failed.
//
// The time limit of the request (Config.Timeout) continues to run during wait. So the caller sets a
// limit of its own for the work after it.
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

// parkable makes Park possible for a call; body is its packed load.
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

// reload decodes the load once more. It does not call Account.Take: few requests continue at the same
// time, and each was accounted for when it arrived.
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
