package nodeapi

import (
	"maps"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"saltern/internal/ratelimit"
)

// limiter limits what unauthenticated peers (strangers) can do, for each source (an IPv4 address,
// or the /64 of an IPv6 address) and for all sources together. One source gets at most half of the
// remaining shared budget. The last units go to sources that have used none lately. So an attacker
// with a few addresses cannot keep others from joining. Connections of members have their own
// count, so that strangers cannot use them up. Until the peer has shown a certificate, its address
// decides whether the connection counts as a member's.
type limiter struct {
	now    func() time.Time
	member func(netip.Addr) bool // reports whether an address belongs to a node of the table

	mu      sync.Mutex
	sources map[netip.Addr]*source
	conns   map[net.Conn]*held
	total   [2]int           // open connections of strangers, and of members
	all     ratelimit.Bucket // hellos of all strangers
	wrong   ratelimit.Bucket // failed proofs of all strangers
}

// held describes an open connection, and the counts to which it belongs.
type held struct {
	source netip.Addr
	member int         // index of limiter.total: 1 for a member, 0 for a stranger
	end    *time.Timer // closes the connection of a stranger that does not authenticate in time
}

// source counts the requests and connections of one address.
type source struct {
	hellos, failures ratelimit.Bucket
	asked            ratelimit.Bucket // hellos of the last minutes; a source with fewer hellos has precedence
	conns            [2]int
}

// Rates. A hello costs the cluster an RSA signature, and a failed authentication is a guess at the
// secret. So a machine may fail a few times and must then wait.
const (
	hellosPerMinute   = 60
	failuresPerMinute = 6
	hellosPerSecond   = 10 // hellos of all strangers together
	maxFailures       = 60 // failed proofs a minute, of all strangers together
	maxSources        = 4096
	maxStrangers      = 128
	maxMembers        = 256
	maxConnsPerSource = 24
	// unprovenFor is how long a connection may last before the peer has proven the secret or shown
	// a member's certificate.
	unprovenFor = time.Minute
)

func newLimiter(now func() time.Time, member func(netip.Addr) bool) *limiter {
	return &limiter{now: now, member: member, sources: map[netip.Addr]*source{}, conns: map[net.Conn]*held{}}
}

// Rate limits for strangers: for each source, and for all sources together.
var (
	hellos      = ratelimit.Rate{Burst: hellosPerMinute, PerSecond: hellosPerMinute / 60.0}
	failures    = ratelimit.Rate{Burst: failuresPerMinute, PerSecond: failuresPerMinute / 60.0}
	remembered  = ratelimit.Rate{PerSecond: 0.1} // how fast the count of hellos of a source decays
	allHellos   = ratelimit.Rate{Burst: 4 * hellosPerSecond, PerSecond: hellosPerSecond}
	allFailures = ratelimit.Rate{Burst: maxFailures, PerSecond: maxFailures / 60.0}
)

func (l *limiter) source(a netip.Addr, now time.Time) *source {
	s := l.sources[a]
	if s == nil {
		if len(l.sources) >= maxSources {
			l.forget(now)
		}
		s = &source{}
		l.sources[a] = s
	}
	return s
}

// forget drops the sources that have been quiet for two minutes. If no source was quiet, it drops
// every source without a connection: the shared budgets still limit the dropped sources.
func (l *limiter) forget(now time.Time) {
	maps.DeleteFunc(l.sources, func(_ netip.Addr, s *source) bool {
		return s.conns == [2]int{} && now.Sub(s.hellos.Last()) > 2*time.Minute &&
			now.Sub(s.failures.Last()) > 2*time.Minute
	})
	if len(l.sources) < maxSources {
		return
	}
	maps.DeleteFunc(l.sources, func(_ netip.Addr, s *source) bool { return s.conns == [2]int{} })
}

// takeHello counts a hello of a stranger and reports whether it may be answered.
func (l *limiter) takeHello(remote string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s := l.source(ratelimit.SourceOf(remote), now)
	wrong := allFailures.Burst - l.wrong.Used(now, allFailures)
	if !s.failures.Has(now, failures, 1) || !fairShare(s.failures.Used(now, failures), wrong) {
		return false
	}

	left := allHellos.Burst - l.all.Used(now, allHellos)
	if !fairShare(s.asked.Used(now, remembered), left) {
		return false
	}
	if !s.hellos.Take(now, hellos, 1) || !l.all.Take(now, allHellos, 1) {
		return false
	}

	s.asked.Charge(now, remembered, 1)
	return true
}

// fairShare reports whether a source may use one more unit of a budget. used is what the source has
// used. remaining is what remains for all sources.
func fairShare(used, remaining float64) bool {
	return remaining >= 1 && (used < 1 || used+1 <= remaining/2)
}

// failed counts a failed authentication.
func (l *limiter) failed(remote string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.source(ratelimit.SourceOf(remote), now).failures.Take(now, failures, 1)
	l.wrong.Take(now, allFailures, 1)
}

// connState updates the counts when a connection opens or closes, and closes a new connection above
// the bounds.
func (l *limiter) connState(c net.Conn, st http.ConnState) {
	switch st {
	case http.StateNew:
		if !l.admitConn(c) {
			_ = c.Close() // the connection counts until the server reports it closed
		}
	case http.StateClosed, http.StateHijacked:
		l.forgetConn(c)
	}
}

// admitConn counts a connection and reports whether it is within the bounds.
func (l *limiter) admitConn(c net.Conn) bool {
	h := &held{source: ratelimit.SourceOf(c.RemoteAddr().String())}
	if ap, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil && l.member(ap.Addr().Unmap()) {
		h.member = 1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = h
	h.end = time.AfterFunc(unprovenFor, func() { _ = c.Close() })
	return l.countConn(h)
}

// countConn adds a connection to the counts and reports whether it is within the bounds.
func (l *limiter) countConn(h *held) bool {
	s := l.source(h.source, l.now())
	own := s.conns[h.member]
	left := [2]int{maxStrangers, maxMembers}[h.member] - l.total[h.member]
	s.conns[h.member]++
	l.total[h.member]++
	switch {
	case own >= maxConnsPerSource || left < 1:
		return false
	case h.member == 1:
		return true
	}
	return fairShare(float64(own), float64(left))
}

func (l *limiter) uncountConn(h *held) {
	if s := l.sources[h.source]; s != nil {
		s.conns[h.member]--
	}
	l.total[h.member]--
}

func (l *limiter) forgetConn(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.conns[c]; h != nil {
		h.end.Stop()
		l.uncountConn(h)
		delete(l.conns, c)
	}
}

// proven removes the time limit of a connection on which the peer has authenticated with the secret
// or a member's certificate. A member's connection is then counted among those of members, whatever
// its address is.
func (l *limiter) proven(c net.Conn, member bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.conns[c]
	if h == nil {
		return
	}
	h.end.Stop()
	if member && h.member == 0 {
		l.uncountConn(h)
		h.member = 1
		l.countConn(h)
	}
}
