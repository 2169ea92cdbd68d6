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

// limiter counts what strangers do, by the address (of IPv6: the /64) they come
// from, and all together. Of what all share one source gets at most half of what is left,
// and who has asked for nothing yet gets the last of it: whoever fills it, from a few
// addresses, keeps nobody else from joining. Connections of members, by their address before they
// have proven anything and by their certificate afterwards, are counted apart:
// strangers cannot take their places.
type limiter struct {
	now    func() time.Time
	member func(netip.Addr) bool // reports whether an address belongs to a node of the table

	mu      sync.Mutex
	sources map[netip.Addr]*source
	conns   map[net.Conn]*held
	total   [2]int           // connections of strangers and of members
	all     ratelimit.Bucket // hellos
	wrong   ratelimit.Bucket // failures of all
}

// held is an open connection, with the account in which it counts.
type held struct {
	source netip.Addr
	member int         // index of total
	end    *time.Timer // of a stranger that proves nothing
}

// source counts the requests and connections of one address.
type source struct {
	hellos, failures ratelimit.Bucket
	asked            ratelimit.Bucket // hellos of the last minutes: sources with fewer of them come first
	conns            [2]int
}

// Rates. A hello costs the cluster an RSA signature and a failed proof is a
// guess, so a machine may be wrong a few times and is then made to wait.
const (
	hellosPerMinute   = 60
	failuresPerMinute = 6
	hellosPerSecond   = 10 // of all strangers together
	maxFailures       = 60 // a minute, of all strangers together
	maxSources        = 4096
	maxStrangers      = 128
	maxMembers        = 256
	maxConnsPerSource = 24
	// unprovenFor is how long a connection may last on which neither the secret
	// nor a member's certificate was shown.
	unprovenFor = time.Minute
)

func newLimiter(now func() time.Time, member func(netip.Addr) bool) *limiter {
	return &limiter{now: now, member: member, sources: map[netip.Addr]*source{}, conns: map[net.Conn]*held{}}
}

// The rates of strangers: of each, and of all together.
var (
	hellos      = ratelimit.Rate{Burst: hellosPerMinute, PerSecond: hellosPerMinute / 60.0}
	failures    = ratelimit.Rate{Burst: failuresPerMinute, PerSecond: failuresPerMinute / 60.0}
	remembered  = ratelimit.Rate{PerSecond: 0.1} // how slowly hellos of a source are forgotten
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

// forget drops those that have been quiet; when there are none, everybody
// without a connection: the common bucket still holds.
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

// takeHello reports whether a stranger may ask who is there.
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

// fairShare reports whether a source that has used so much of something may have one more, when
// so much of it is left for all.
func fairShare(used, left float64) bool {
	return left >= 1 && (used < 1 || used+1 <= left/2)
}

// failed counts a wrong proof.
func (l *limiter) failed(remote string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.source(ratelimit.SourceOf(remote), now).failures.Take(now, failures, 1)
	l.wrong.Take(now, allFailures, 1)
}

// connState keeps the number of connections of each source and of all.
func (l *limiter) connState(c net.Conn, st http.ConnState) {
	switch st {
	case http.StateNew:
		if !l.admitConn(c) {
			_ = c.Close() // counted until the server sees it closed
		}
	case http.StateClosed, http.StateHijacked:
		l.forgetConn(c)
	}
}

// admitConn counts a connection and reports whether there is room for it.
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

// countConn counts a connection and reports whether there is room for it.
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

// proven takes a connection for one that may last: on it the secret was shown,
// or the certificate of a member, whose place it takes wherever it comes from.
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
