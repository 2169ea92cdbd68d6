package lbproxy

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"saltern/internal/ratelimit"
)

// knownFor is how long a source stays known after a master last answered one of its minions.
// Minions that get no jobs may be quiet for days.
const knownFor = 7 * 24 * time.Hour

// proofEvery is how many seconds pass before a session records another sealed answer.
const proofEvery = 3600

// knownSources holds the sources of accepted minions. It is safe for concurrent use; all frontends
// of a proxy share it.
//
// The proxy sees only bytes. It judges a source by a master's answers on the request port: a
// stranger gets maps (sign-in, ping) and plain texts ("bad load"). Only a request sealed with the
// session key of an accepted minion gets a sealed blob (salt/channel/server.py handle_message), see
// sealedAnswer.
//
// An attacker without an accepted key (stranger) can still do this: from each of his addresses he
// can hold as many sessions as an unknown source may, up to the descriptors that unknown sources
// share. If he shares the address (NAT, /64) of an accepted minion, he has the limits of a known
// source. In both cases known sources, loopback and existing sessions lose nothing.
type knownSources struct {
	mu     sync.Mutex
	proofs map[netip.Addr]int64 // clock at the last proof; negative: an earlier process recorded the proof
	limit  int
}

func newKnown() *knownSources {
	return &knownSources{proofs: map[netip.Addr]int64{}, limit: maxSources}
}

func (k *knownSources) contains(a netip.Addr, now int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, ok := k.proofs[ratelimit.Source(a)]
	return ok && now-at < int64(knownFor)
}

// add records that a master answered a minion of this source. If the table is full, add removes the
// first entry in Go's random map order, so that an attacker cannot choose the entry.
func (k *knownSources) add(a netip.Addr, at int64) {
	a = ratelimit.Source(a)
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.proofs[a]; !ok && len(k.proofs) >= k.limit {
		for old := range k.proofs {
			delete(k.proofs, old)
			break
		}
	}
	k.proofs[a] = max(at, k.proofs[a])
}

func (k *knownSources) forgetOld(now int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.proofs, func(_ netip.Addr, at int64) bool { return now-at >= int64(knownFor) })
}

func (k *knownSources) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.proofs)
}

// knownSource is the form in which one process passes an entry to the next.
type knownSource struct {
	Source netip.Addr    `json:"source"`
	Age    time.Duration `json:"age_ns"`
}

func (k *knownSources) entries(now int64) []knownSource {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]knownSource, 0, len(k.proofs))
	for a, at := range k.proofs {
		out = append(out, knownSource{a, time.Duration(now - at)})
	}
	return out
}

// inherit adds the known sources of an earlier process.
func (k *knownSources) inherit(list []knownSource, now int64) {
	for _, s := range list {
		if s.Source.IsValid() && s.Age >= 0 && s.Age < knownFor {
			k.add(s.Source, now-int64(s.Age))
		}
	}
}

// sealedAnswer reports whether b begins the answer to an encrypted request, in a payload of size
// bytes: packed bytes (msgpack's raw or bin) of at least an initialisation vector, a block and a
// HMAC (salt/crypt.py Crypticle). Its first bytes are random. A master answers strangers in plain
// ASCII; 24 random bytes are all ASCII once in 10^10.
func sealedAnswer(b []byte, size uint64) bool {
	if len(b) == 0 || size < 64 {
		return false
	}

	head := 0
	switch b[0] {
	case 0xc4, 0xd9:
		head = 2
	case 0xc5, 0xda:
		head = 3
	case 0xc6, 0xdb:
		head = 5
	default:
		return false
	}

	if len(b) < head+24 {
		return false
	}

	for _, c := range b[head : head+24] {
		if c >= 0x80 || c < 0x20 && c != '\n' && c != '\r' && c != '\t' {
			return true
		}
	}

	return false
}
