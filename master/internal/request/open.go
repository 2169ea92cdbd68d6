package request

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"saltern/master/internal/source"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// Account bounds the memory that one sender's requests may use. Package zmtp implements it. Only
// the goroutine that handles the request calls the methods.
type Account interface {
	// Take reserves n bytes until the request is answered. It returns false if that would exceed
	// the bound of the account.
	Take(n int64) bool
	// Prove records that the sender is authenticated. If the sender was not authenticated before,
	// Prove calls fresh, and records the sender only if fresh returns true. fresh must return false
	// for a replayed request.
	Prove(fresh func() bool)
}

// Bounds of a request whose sender is not authenticated yet.
const (
	maxFields     = 16        // fields in the envelope
	maxField      = 8 << 10   // bytes of each field, except the load
	maxStrange    = 256 << 10 // bytes of an unencrypted load from an unauthenticated sender
	maxValues     = 4096      // values in an unencrypted load
	maxLoadFields = 64        // top-level fields of an unencrypted load
	// maxWalks is how many payloads with more than maxValues values are searched for a valid key or
	// token per second.
	maxWalks = 50
	// freeValues is how many bytes of decoded values a request may use without Account.Take.
	freeValues = 16 << 10
)

// strangeLimits bounds an unencrypted load of an unauthenticated sender. Sign-ins and commands of
// tools need no deeper nesting.
var strangeLimits = msgpack.Limits{Depth: 16, Nodes: maxValues}

// errMemory means that the sender may use no more memory at the moment.
var errMemory = errors.New("no memory for the request now")

// walkLimit limits how many payloads with many values are accepted: maxWalks a second. The zero
// value is ready to use.
type walkLimit struct {
	mu    sync.Mutex
	since time.Time
	count int
}

func (w *walkLimit) allowWalk(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := now.Sub(w.since); d >= time.Second || d < 0 {
		w.since, w.count = now, 0
	}
	w.count++
	return w.count <= maxWalks
}

// envelope is the outer map of a request. A missing field is nil. The load is decoded later, when
// the sender is authenticated.
type envelope struct {
	enc, id, version any
	encAlgo, sigAlgo any
	load             []byte // packed; a part of the payload's memory
}

// fieldAt returns a pointer to the struct field for a field of the request, or nil if the server
// does not use that field.
func (e *envelope) fieldAt(field []byte) *any {
	switch string(field) {
	case "enc":
		return &e.enc
	case "id":
		return &e.id
	case "version":
		return &e.version
	case "enc_algo":
		return &e.encAlgo
	case "sig_algo":
		return &e.sigAlgo
	}
	return nil
}

// openEnvelope reads the envelope of a request. Payloads with many values outside of an encrypted
// load are rarely legitimate, so openEnvelope accepts at most maxWalks of them a second.
func (s *Server) openEnvelope(payload []byte, now time.Time) (e envelope, err error) {
	raw, err := msgpack.Fields(payload,
		msgpack.Limits{Depth: msgpack.DefaultLimits.Depth, Nodes: maxValues + 2*maxFields}, maxFields)
	if errors.Is(err, msgpack.ErrLimit) {
		if !s.walks.allowWalk(now) {
			return e, refuse(badLoad, "payload of %d bytes with too many values, among many such", len(payload))
		}
		raw, err = msgpack.Fields(payload, msgpack.DefaultLimits, maxFields)
	}

	if errors.Is(err, msgpack.ErrNotMap) {
		if _, derr := msgpack.Measure(payload, msgpack.DefaultLimits); derr == nil {
			return e, refuse(badLoad, "payload is not a map")
		}
	}

	if err != nil {
		return e, refuse(routingError(), "reading a payload of %d bytes: %v", len(payload), err)
	}

	for _, f := range raw {
		if string(f.Key) == "load" {
			e.load = f.Value
			continue
		}
		if len(f.Value) > maxField {
			return e, refuse(badLoad, "field %.20q of %d bytes", f.Key, len(f.Value))
		}

		v, err := msgpack.Decode(f.Value, strangeLimits)
		if err != nil {
			return e, refuse(routingError(), "decoding field %.20q: %v", f.Key, err)
		}

		if at := e.fieldAt(f.Key); at != nil {
			*at = v
		}
	}

	return e, nil
}

// unpack decodes b and charges the memory of its values to account.
func unpack(b []byte, limits msgpack.Limits, account Account) (any, error) {
	size, err := msgpack.Measure(b, limits)
	if err != nil {
		return nil, err
	}
	return unpackSized(b, size, limits, account)
}

// unpackSized decodes b and charges its memory to account. size is the result of measuring b.
func unpackSized(b []byte, size msgpack.Size, limits msgpack.Limits, account Account) (any, error) {
	if n := size.Memory; n > freeValues && account != nil && !account.Take(n) {
		return nil, fmt.Errorf("%w: %d bytes", errMemory, n)
	}
	return msgpack.Decode(b, limits)
}

// clearLoad decodes an unencrypted load. It refuses a large load that contains no valid key or
// token.
func (s *Server) clearLoad(raw []byte, account Account) (any, error) {
	limits := strangeLimits
	size, err := msgpack.Measure(raw, limits)
	if len(raw) > maxStrange || errors.Is(err, msgpack.ErrLimit) {
		known, tool := s.hasCredentials(raw)
		if !known {
			var answer any = badLoad
			if tool {
				answer = denied()
			}
			return nil, refuse(answer,
				"load of %d bytes in the clear, or of more than %d values, from a caller who has proved nothing",
				len(raw), maxValues)
		}

		limits = msgpack.DefaultLimits
		if account != nil {
			account.Prove(func() bool { return true })
		}

		size, err = msgpack.Measure(raw, limits)
	}

	var v any
	if err == nil {
		v, err = unpackSized(raw, size, limits, account)
	}

	switch {
	case errors.Is(err, errMemory):
		return nil, refuse(badLoad, "%v", err)
	case err != nil:
		return nil, refuse(routingError(), "decoding a load of %d bytes: %v", len(raw), err)
	}

	return v, nil
}

// denied returns the answer of the Python master to a tool with a wrong key (salt/master.py
// ClearFuncs.publish).
func denied() *value.Map {
	return value.NewMap("error",
		value.NewMap("name", "AuthenticationError", "message", "Authentication error occurred."))
}

// Credentials are the secrets in an unencrypted load with which the load's sender authenticates. A
// missing field is empty.
type Credentials struct {
	Key, Token string
	// Source is set by a program of this host that forwards the load of another sender; see package
	// source.
	Source string
}

// hasCredentials reports as valid whether an unencrypted load contains a valid key, token or
// Source. In a publish the token may be among the kwargs. tool is true if the load contains any
// credentials, valid or not. hasCredentials decodes no values.
func (s *Server) hasCredentials(raw []byte) (valid, tool bool) {
	c, kwargs, tool := credentialsIn(raw)
	if kwargs != nil && c.Token == "" {
		more, _, named := credentialsIn(kwargs)
		c.Token, tool = more.Token, tool || named
	}
	return tool && s.cfg.Known != nil && s.cfg.Known(c), tool
}

// credentialsIn returns the credentials in a packed map, and the packed value of its field kwargs.
// It leaves out credentials that are too long. present is true if the map has a field for
// credentials.
func credentialsIn(raw []byte) (c Credentials, kwargs []byte, present bool) {
	const longest = 4096 // bytes; valid credentials are far shorter
	fields, err := msgpack.Fields(raw, msgpack.DefaultLimits, maxLoadFields)
	if err != nil {
		return c, nil, false
	}

	for _, f := range fields {
		text, _ := msgpack.Contents(f.Value)
		if len(text) > longest {
			text = nil
		}

		switch string(f.Key) {
		case "key":
			c.Key, present = string(text), true
		case "token":
			c.Token, present = string(text), true
		case source.Field:
			c.Source, present = string(text), true
		case "kwargs":
			kwargs = f.Value
		}
	}

	return c, kwargs, present
}
