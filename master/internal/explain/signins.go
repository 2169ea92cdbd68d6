package explain

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"saltern/internal/printable"
	"saltern/master/internal/datafile"
	"saltern/master/internal/request"
	"saltern/master/keys"
	"saltern/master/value"
)

// maxSignIns bounds the ids whose last sign-in is remembered, and maxStrangers those of them that have no
// key, because a stranger chooses ids as he likes. Overflow policy: the id that was remembered first is
// forgotten.
const (
	maxSignIns   = 50_000
	maxStrangers = 1000
)

// SignIn is the last sign-in under an id at this master. It proves nothing about its sender.
type SignIn struct {
	At      time.Time
	From    netip.Addr
	Version int64 // of the protocol
	// Refusal is why the minion was sent away, in the words of the answer. It is "" if the answer was
	// about the key.
	Refusal string
}

// SignIns remembers the last sign-in under each id. It is a request.Auth that passes all to another one,
// and is safe for concurrent use.
type SignIns struct {
	request.Auth
	keys *keys.Store
	now  func() time.Time

	mu        sync.Mutex
	known     pool
	strangers pool
}

// NewSignIns returns SignIns that pass all sign-ins to auth.
func NewSignIns(auth request.Auth, store *keys.Store, now func() time.Time) *SignIns {
	return &SignIns{
		Auth:      auth,
		keys:      store,
		now:       now,
		known:     pool{most: maxSignIns},
		strangers: pool{most: maxStrangers},
	}
}

// SignIn implements request.Auth.
func (s *SignIns) SignIn(ctx context.Context, load *value.Map, version int64, from netip.AddrPort) any {
	answer := s.Auth.SignIn(ctx, load, version, from)
	id := load.Str("id")
	if keys.ValidID(id) != nil {
		return answer
	}

	_, hasKey := s.keys.Lookup(id)
	one := SignIn{At: s.now(), From: from.Addr().Unmap(), Version: version, Refusal: refusalOf(answer)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if hasKey {
		s.strangers.remove(id)
		s.known.put(id, one)
	} else {
		s.strangers.put(id, one)
	}
	return answer
}

// Last returns the last sign-in under an id. There may be one from before the key was deleted, and one since.
func (s *SignIns) Last(id string) (SignIn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, hasKnown := s.known.last[id]
	stranger, isStranger := s.strangers.last[id]
	if isStranger && stranger.At.After(known.At) {
		return stranger, true
	}
	return known, hasKnown
}

// refusalOf returns why a minion was sent away, or "" if the answer is about its key
// (salt/channel/server.py _auth).
func refusalOf(answer any) string {
	const longest = 200
	switch answer := answer.(type) {
	case string:
		return printable.Clip(printable.Line(answer), longest)
	case *value.Map:
		load, unsigned := answer.Value("load").(*value.Map)
		if packed, signed := answer.Bytes("load"); signed && !unsigned {
			load, _ = signedAnswer.Unpack(packed)
		}
		return load.Str("ret")
	}
	return ""
}

// signedAnswer bounds the answers that are unpacked.
var signedAnswer = datafile.Bound{Bytes: 64 << 10}

// pool holds sign-ins of at most most ids.
type pool struct {
	most  int
	last  map[string]SignIn
	order []string // ids, the one that was put first at the front; may have ids that were removed
}

func (p *pool) put(id string, one SignIn) {
	if p.last == nil {
		p.last = map[string]SignIn{}
	}
	if _, known := p.last[id]; !known {
		for len(p.order) >= p.most {
			delete(p.last, p.order[0])
			p.order = p.order[1:]
		}
		p.order = append(p.order, id)
	}
	p.last[id] = one
}

// remove forgets an id. Its place in the order is freed when it comes to the front.
func (p *pool) remove(id string) { delete(p.last, id) }
