package request

import (
	"net/netip"
	"sync"
	"time"
)

// maxRefusals bounds the sources whose refusals are remembered. Overflow policy: the source whose
// first refusal is the oldest is forgotten.
const maxRefusals = 1000

// Refusal is the last request of a source that was refused before its sender was proven.
type Refusal struct {
	Why   string
	At    time.Time
	Count int // refused requests of the source
}

// refusals remembers why requests were refused, by source. The zero value is empty. It is safe for
// concurrent use.
type refusals struct {
	mu    sync.Mutex
	last  map[netip.Addr]*Refusal
	order []netip.Addr // the sources in last, the oldest first
}

func (r *refusals) add(from netip.Addr, why string, at time.Time) {
	from = from.Unmap()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[netip.Addr]*Refusal{}
	}

	one := r.last[from]
	if one == nil {
		if len(r.order) >= maxRefusals {
			delete(r.last, r.order[0])
			r.order = r.order[1:]
		}
		one = &Refusal{}
		r.last[from] = one
		r.order = append(r.order, from)
	}
	one.Why = why
	one.At = at
	one.Count++
}

// RefusedFrom returns the last refused request of a source. ok is false if none is remembered.
func (s *Server) RefusedFrom(from netip.Addr) (last Refusal, ok bool) {
	r := &s.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.last[from.Unmap()]
	if one == nil {
		return Refusal{}, false
	}
	return *one, true
}
