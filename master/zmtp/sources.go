package zmtp

import (
	"net/netip"
	"sync"
	"time"
)

// Sources records the addresses from which requests were authenticated recently. Peers from these
// addresses use the memory and the workers of authenticated peers: a minion often opens a new
// connection for a request, and must be recognised before its message has arrived. Several
// listeners may share a Sources. All methods are safe for concurrent use. Overflow policy: when
// there are more than maxSources addresses, Sources compares a few random ones and drops the
// address that authenticated longest ago; peers from that address are treated as unauthenticated
// until their next authenticated request.
type Sources struct {
	now func() time.Time

	mu sync.RWMutex
	at map[netip.Addr]time.Time
}

const (
	maxSources  = 65536
	sourceLasts = 24 * time.Hour
)

// NewSources returns an empty table. now returns the current time; programs pass time.Now.
func NewSources(now func() time.Time) *Sources {
	return &Sources{now: now, at: map[netip.Addr]time.Time{}}
}

// source returns the address under which a peer is counted: its IPv4 address, or the /64 network of
// its IPv6 address, since one host may use all addresses of such a network.
func source(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// Prove records that a request from a was authenticated now.
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

// forgetOne removes one address. The caller holds s.mu. Go iterates over maps in random order, so
// the first eight addresses are a random choice.
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

// Proven reports whether a request from a was authenticated within the last day.
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
