package request

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// parker is an Account that can release the sender's worker to other requests while the sender's
// request waits. The accounts of package zmtp implement it.
type parker interface{ Park() (resume func()) }

// Park calls wait, which may block for as long as the sender waits for the answer. While wait runs,
// the request occupies its connection, the memory of its packed load and a goroutine, but no worker
// of the port. c.Load is nil during wait, and Park decodes it again afterwards. Server.Oldest does
// not include the time of wait.
//
// wait gets the context connected, which ends when the sender disconnects, because then nobody
// needs the answer. Park returns the error of wait, or the error of decoding the load again.
//
// The time limit of the request (Config.Timeout) continues to run during wait. So the caller must
// set its own time limit for the work after Park.
func (c *Call) Park(ctx context.Context, wait func(connected context.Context) error) error {
	connected, stop := WhileAsked(context.WithoutCancel(ctx))
	defer stop()

	if c.park == nil {
		return wait(connected)
	}

	resume := c.park()
	c.Load = nil
	err := wait(connected)
	resume()

	if err != nil {
		return err
	}

	c.Load, err = c.reload()
	return err
}

// Size returns the approximate memory that a parked request uses, in bytes.
func (c *Call) Size() int { return len(c.body) + parkedSize }

// parkedSize is the approximate size in bytes of a waiting goroutine and its connection.
const parkedSize = 16 << 10

// parkable prepares a call for Park. body is the packed load of the call.
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

// reload decodes the load after wait. It does not call Account.Take: few requests resume at the
// same time, and each was charged when it arrived.
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
