package request

import (
	"context"
	"net/netip"

	"saltern/master/value"
)

// Call is one request on its way to a method.
type Call struct {
	// ID is the proven id of the minion that asks. It is empty for local methods, whose callers prove
	// who they are with a key or a token in the load.
	ID string
	// Load holds the fields of the command without cmd, nonce and token. Its field id, if any, equals
	// ID.
	Load *value.Map
	// From is the sender's address, as the connection or the trusted proxy in front of it tells.
	From netip.AddrPort
	// EncAlgo and SigAlgo are the algorithms that the sender wants in a private reply.
	EncAlgo, SigAlgo string
	// Nonce is the nonce of the request, which a private reply must repeat. A minion that asks for
	// its pillar again repeats the nonce (salt/channel/client.py crypted_transfer_decode_dictentry).
	// All other requests have a new one each time.
	Nonce string

	// park and the fields below are for Park. If park is nil, the call cannot be parked.
	park  func() (resume func())
	body  []byte // the packed load; a part of the payload's memory
	token uint64 // key of the request in inflight
}

// Func is a method. Its result is packed as it is. The answer to a minion is encrypted with its
// session key unless the result is Plain; the answer of a local method is the packed result alone.
// Only methods for minions may return a packer. An error is logged and answered with an empty text,
// as Salt does when a handler raises an exception. There is no answer at all after an ErrSilence, or
// if the time limit or the stop of the master caused the error.
type Func func(ctx context.Context, c *Call) (any, error)

// Plain is a complete payload that is sent without encryption by the session key: the private pillar
// reply, whose map contains a key of its own.
type Plain struct{ Payload *value.Map }

// packer is a result that appends itself to the buffer that is sent, so that a big answer is not
// copied. A method with Once must not return one. The server calls AppendPacked at most once, and
// then Close in any case.
type packer interface {
	// PackedSize returns how many bytes AppendPacked appends at most.
	PackedSize() int
	// AppendPacked appends the packed value to dst. It may use head, which appends the head of a
	// packed byte string of n bytes.
	AppendPacked(dst []byte, head func(dst []byte, n int) []byte) ([]byte, error)
	Close() error
}

// Method is one row of the table.
type Method struct {
	// Local methods are called without encryption by tools on the master's host, and check
	// credentials themselves. All others need a session key and a token.
	Local bool
	// Requires lists the fields that the load must have.
	Requires []string
	// Missing is the answer when one of these fields is missing.
	Missing any
	// Once marks a method with a lasting effect. When a request arrives again with the same nonce, it
	// is not executed again, but gets the first answer.
	Once bool
	Do   Func
}

// Table maps the value of cmd to its method. It must not change after it is passed to New.
type Table map[string]Method
