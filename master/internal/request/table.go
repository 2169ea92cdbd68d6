package request

import (
	"context"
	"net/netip"

	"saltern/master/value"
)

// Call is one request that is passed to a method.
type Call struct {
	// ID is the authenticated id of the minion that sent the request. It is empty for local
	// methods, whose callers authenticate by a key or a token in the load.
	ID string
	// Load holds the fields of the command without cmd, nonce and token. If Load has a field id, it
	// equals ID.
	Load *value.Map
	// From is the sender's address, as reported by the connection or by the trusted proxy in front
	// of the master.
	From netip.AddrPort
	// EncAlgo and SigAlgo are the algorithms that the sender requests for a private reply.
	EncAlgo, SigAlgo string
	// Nonce is the nonce of the request, which a private reply must contain. A minion that repeats
	// a request for its pillar sends the same nonce again (salt/channel/client.py
	// crypted_transfer_decode_dictentry). All other requests have a new nonce each time.
	Nonce string

	// Only the method Park uses park, body and token. If park is nil, the call cannot be parked.
	park  func() (resume func())
	body  []byte // the packed load; a part of the payload's memory
	token uint64 // key of the request in inflight
}

// Func is a method. The server packs the result of a Func unchanged. For a minion it encrypts the
// packed result with the minion's session key, unless the result is a Plain. For a local method the
// answer is the packed result, unencrypted. Only methods for minions may return a packer. If a Func
// returns an error, the server logs it and answers with an empty text, as Salt does when a handler
// raises an exception. It sends no answer if the error wraps ErrSilence, or if the time limit or
// the stop of the master caused the error.
type Func func(ctx context.Context, c *Call) (any, error)

// Plain is a complete payload that the server sends without encrypting it with the session key. It
// is used for the private pillar reply, whose map contains the key that encrypts it.
type Plain struct{ Payload *value.Map }

// packer is a result that appends its packed form to the buffer that is sent, so that a big answer
// is not copied. A method with Once must not return a packer. The server calls AppendPacked at most
// once, and always calls Close afterwards.
type packer interface {
	// PackedSize returns how many bytes AppendPacked appends at most.
	PackedSize() int
	// AppendPacked appends the packed value to dst. It may call head, which appends the head of a
	// packed byte string of n bytes.
	AppendPacked(dst []byte, head func(dst []byte, n int) []byte) ([]byte, error)
	Close() error
}

// Method is a method with its requirements: one row of the table.
type Method struct {
	// Local methods are called without encryption by tools on the master's host, and check
	// credentials themselves. All other methods require a session key and a token.
	Local bool
	// Requires lists the fields that the load must contain.
	Requires []string
	// Missing is the answer if one of the fields in Requires is missing.
	Missing any
	// Once marks a method with a lasting effect. If a request for the method arrives again with the
	// same nonce, the server does not execute the request again, but sends the first answer.
	Once bool
	Do   Func
}

// Table maps each value of cmd to its method. It must not be changed after it is passed to New.
type Table map[string]Method
