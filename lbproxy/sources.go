package lbproxy

import (
	"net/netip"
	"sync"
)

// maxSources bounds the table of sources. When it is full and nothing in it
// can be forgotten, further sources share one entry: they are limited
// together, and the table does not grow.
const maxSources = 65536

// source counts one IPv4 address or one IPv6 /64.
type source struct {
	tokens float64
	at     int64 // nanoseconds, when tokens was right
	open   int
}

// sources applies the per-source limits of a frontend. Safe for concurrent use.
type sources struct {
	mu       sync.Mutex
	rate     float64
	burst    float64
	max      int
	table    map[netip.Addr]*source
	limit    int
	overflow source
	shared   uint64 // how often the overflow entry was used
}

func newSources(rate, burst float64, maxOpen int) *sources {
	if rate <= 0 && maxOpen <= 0 {
		return nil
	}
	return &sources{rate: rate, burst: max(burst, 1), max: maxOpen, table: map[netip.Addr]*source{}, limit: maxSources}
}

// sourceKey is the unit that limits count: an IPv4 address or an IPv6 /64.
func sourceKey(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}

// open takes one connection in; false means refuse it. A true must be paid
// back by done.
func (s *sources) open(a netip.Addr, now int64) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(sourceKey(a), now)
	if s.max > 0 && e.open >= s.max {
		return false
	}
	if s.rate > 0 {
		e.tokens = min(s.burst, e.tokens+float64(now-e.at)/1e9*s.rate)
		e.at = now
		if e.tokens < 1 {
			return false
		}
		e.tokens--
	}
	e.open++
	return true
}

func (s *sources) entry(k netip.Addr, now int64) *source {
	if e := s.table[k]; e != nil {
		return e
	}
	if len(s.table) >= s.limit {
		s.shared++
		if s.overflow.at == 0 {
			s.overflow.tokens, s.overflow.at = s.burst, now
		}
		return &s.overflow
	}
	e := &source{tokens: s.burst, at: now}
	s.table[k] = e
	return e
}

// done is called when a connection let in has closed.
func (s *sources) done(a netip.Addr) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.table[sourceKey(a)]; e != nil && e.open > 0 {
		e.open--
	} else if s.overflow.open > 0 {
		s.overflow.open--
	}
}

// sweep forgets sources without connections whose bucket is full again.
func (s *sources) sweep(now int64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.table {
		if e.open == 0 && (s.rate <= 0 || e.tokens+float64(now-e.at)/1e9*s.rate >= s.burst) {
			delete(s.table, k)
		}
	}
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
