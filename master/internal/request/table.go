package request

import (
	"context"
	"net/netip"

	"saltern/master/value"
)

// Call is one request on its way to a method.
type Call struct {
	// ID is the proven id of the minion that asks; empty for local (clear)
	// methods, whose callers prove themselves by key or token.
	ID string
	// Load holds the command's fields without cmd, nonce and token. Any id
	// inside it equals ID.
	Load *value.Map
	// From is the sender's address as the connection (or the trusted proxy in
	// front of it) tells.
	From netip.AddrPort
	// EncAlgo and SigAlgo are the algorithms wanted in a private reply.
	EncAlgo, SigAlgo string
	// Nonce is the request's nonce, which a private reply must repeat. A minion that
	// repeats a question for its pillar repeats the nonce (salt/channel/client.py
	// crypted_transfer_decode_dictentry); with all others it is new each time.
	Nonce string

	// For Park; the zero values mean that it is not possible.
	park  func() (resume func())
	body  []byte // the packed load, within the payload
	token uint64 // of the request among those at work
}

// Func is a method. Its result is packed as it is. For minions it is sealed with their session key,
// unless it is Plain; for local methods it is the whole payload. Only minions' methods may return a
// packer. An error is logged and answered by an empty text, as Salt does for an exception in a
// handler. Without an answer stay an error with ErrSilence, and one whose cause is that the time or
// the master has ended.
type Func func(ctx context.Context, c *Call) (any, error)

// Plain is a complete payload that is sent without the session key: the private pillar reply, whose
// map carries its own key.
type Plain struct{ Payload *value.Map }

// packer is a result that packs itself into the buffer that is sent, for answers too big to be
// copied. A method that returns one must not be a Once method. The server calls Close in every
// case, and before it AppendPacked at most once.
type packer interface {
	// PackedSize bounds the bytes that AppendPacked appends.
	PackedSize() int
	// AppendPacked appends the packed value to dst. head appends the head of n packed
	// bytes.
	AppendPacked(dst []byte, head func(dst []byte, n int) []byte) ([]byte, error)
	Close() error
}

// Method is one row of the table.
type Method struct {
	// Local methods are called in the clear by tools on the master's host and check credentials
	// themselves. All others need a session key and a token.
	Local bool
	// Requires lists the fields without which the load is refused.
	Requires []string
	// Missing is the answer when a required field is missing.
	Missing any
	// Once marks a method with a lasting effect: a request that arrives again
	// with the same nonce gets the first answer and is not executed again.
	Once bool
	Do   Func
}

// Table maps "cmd" to its method. It does not change after it was handed to New.
type Table map[string]Method
