package zmtp

import (
	"net/netip"
	"sync"
	"time"
)

// Sources remembers the addresses from which requests were proven recently. Peers from these
// addresses use the memory and the workers of proven peers: a minion often opens a new connection
// for a request, and must be recognised before its message has arrived. Listeners may share a
// Sources. All methods are safe for concurrent use. Overflow policy: beyond maxSources it forgets,
// of a few random addresses, the one proven longest ago; that address counts as a stranger until
// its next proven request.
type Sources struct {
	now func() time.Time

	mu sync.RWMutex
	at map[netip.Addr]time.Time
}

const (
	maxSources  = 65536
	sourceLasts = 24 * time.Hour
)

// NewSources returns an empty table; now is time.Now outside of tests.
func NewSources(now func() time.Time) *Sources {
	return &Sources{now: now, at: map[netip.Addr]time.Time{}}
}

// source returns the address under which a peer counts: its IPv4 address, or the /64 network of its
// IPv6 address, since one host may use all of that network.
func source(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// Prove records that a request from a was proven now.
func (s *Sources) Prove(a netip.Addr) {
	if !a.IsValid() {
		return
	}

	a = source(a)
	now := s.now()
	s.mu.RLock()
	at, ok := s.at[a]
	s.mu.RUnlock()

	if ok && now.Sub(at) < time.Minute {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok && len(s.at) >= maxSources {
		s.forgetOne()
	}

	s.at[a] = now
}

// forgetOne removes one address; s.mu is held. Go iterates over maps in random order, so the first
// eight are a random choice.
func (s *Sources) forgetOne() {
	var oldest netip.Addr
	var since time.Time
	n := 0
	for a, at := range s.at {
		if !oldest.IsValid() || at.Before(since) {
			oldest, since = a, at
		}
		n++
		if n == 8 {
			break
		}
	}
	delete(s.at, oldest)
}

// Proven reports whether a request from a was proven within the last day.
func (s *Sources) Proven(a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	a = source(a)
	s.mu.RLock()
	defer s.mu.RUnlock()
	at, ok := s.at[a]
	return ok && s.now().Sub(at) < sourceLasts
}
