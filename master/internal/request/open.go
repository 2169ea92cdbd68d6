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

// Account is the sender's share of the master's memory; package zmtp implements it. Both methods
// are called by the goroutine that handles the request.
type Account interface {
	// Take sets aside n bytes until the request is answered; false means that there
	// is no room.
	Take(n int64) bool
	// Prove notes that the sender has proved his identity. Unless that is known already, fresh is
	// called to check that the proof is new.
	Prove(fresh func() bool)
}

// Bounds of a request before its sender has proved anything.
const (
	maxFields     = 16        // of the envelope
	maxField      = 8 << 10   // bytes of one, but for the load
	maxStrange    = 256 << 10 // bytes of a load in the clear
	maxValues     = 4096      // values in it
	maxLoadFields = 64        // at the top of it
	// maxWalks is how many payloads with more values are searched for a known key or token in a
	// second.
	maxWalks = 50
	// freeValues is how many bytes decoded values may take without being counted.
	freeValues = 16 << 10
)

// strangeLimits bound a load in the clear of an unknown sender: sign-ins and commands of tools are
// flat.
var strangeLimits = msgpack.Limits{Depth: 16, Nodes: maxValues}

// errMemory refuses a request for which there is no memory now.
var errMemory = errors.New("no memory for the request now")

// walkLimit counts the payloads with many values that are searched. The zero value is ready.
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

// envelope is the outer map of a request; a missing field is nil. Its load is decoded later, when
// its sender is known.
type envelope struct {
	enc, id, version any
	encAlgo, sigAlgo any
	load             []byte // packed, a part of the payload
}

// fieldAt returns the place of a field, or nil for a field that nobody reads.
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

// openEnvelope reads the envelope of a request. Few payloads have many values outside of a sealed
// load; only so many of those are searched.
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

// unpack decodes b, and counts the memory of its values.
func unpack(b []byte, limits msgpack.Limits, account Account) (any, error) {
	size, err := msgpack.Measure(b, limits)
	if err != nil {
		return nil, err
	}
	return unpackSized(b, size, limits, account)
}

// unpackSized is unpack for a payload that was measured already.
func unpackSized(b []byte, size msgpack.Size, limits msgpack.Limits, account Account) (any, error) {
	if n := size.Memory; n > freeValues && account != nil && !account.Take(n) {
		return nil, fmt.Errorf("%w: %d bytes", errMemory, n)
	}
	return msgpack.Decode(b, limits)
}

// clearLoad decodes a load in the clear. A large one must show a key or a token of this master.
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

// denied returns the answer of Salt's master to a tool with a wrong key (salt/master.py
// ClearFuncs.publish).
func denied() *value.Map {
	return value.NewMap("error",
		value.NewMap("name", "AuthenticationError", "message", "Authentication error occurred."))
}

// Credentials are the proofs in a load in the clear; a missing one is empty.
type Credentials struct {
	Key, Token string
	Source     string // Source is set by a program of this host that passes the load on, see package source.
}

// hasCredentials reports whether a load in the clear holds a valid key or token of this master, at
// its top or among the kwargs of a publish, or a valid Source. tool: it holds any credentials at
// all. Nothing is decoded.
func (s *Server) hasCredentials(raw []byte) (known, tool bool) {
	c, kwargs, tool := credentialsIn(raw)
	if kwargs != nil && c.Token == "" {
		more, _, named := credentialsIn(kwargs)
		c.Token, tool = more.Token, tool || named
	}
	return tool && s.cfg.Known != nil && s.cfg.Known(c), tool
}

// credentialsIn reads the credentials, ignoring any that are too long, and finds the kwargs. any:
// there is a field for credentials.
func credentialsIn(raw []byte) (c Credentials, kwargs []byte, any bool) {
	const longest = 4096 // of each, by far
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
			c.Key, any = string(text), true
		case "token":
			c.Token, any = string(text), true
		case source.Field:
			c.Source, any = string(text), true
		case "kwargs":
			kwargs = f.Value
		}
	}

	return c, kwargs, any
}
