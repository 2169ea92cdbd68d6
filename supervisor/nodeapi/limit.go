package nodeapi

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// limiter counts what strangers do, by the address (of IPv6: the /64) they come
// from, and all together.
type limiter struct {
	now func() time.Time

	mu      sync.Mutex
	sources map[netip.Prefix]*source
	all     bucket
}

// source is what one address did.
type source struct {
	hellos, failures bucket
	conns            int
}

// Rates. A hello costs the cluster an RSA signature and a failed proof is a
// guess, so a machine may be wrong a few times and is then made to wait.
const (
	hellosPerMinute   = 60
	failuresPerMinute = 6
	hellosPerSecond   = 10 // of all strangers together
	maxSources        = 4096
	maxConns          = 256
	maxConnsPerSource = 24
)

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, sources: map[netip.Prefix]*source{}}
}

// bucket is a token bucket; the zero value is full.
type bucket struct {
	used float64
	last time.Time
}

func (b *bucket) drain(now time.Time, perSecond float64) {
	b.used = max(0, b.used-now.Sub(b.last).Seconds()*perSecond)
	b.last = now
}

// take takes one token if there is one.
func (b *bucket) take(now time.Time, size, perSecond float64) bool {
	b.drain(now, perSecond)
	if b.used+1 > size {
		return false
	}
	b.used++
	return true
}

func (b *bucket) full(now time.Time, size, perSecond float64) bool {
	b.drain(now, perSecond)
	return b.used+1 > size
}

func sourceOf(remote string) netip.Prefix {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	a := ap.Addr().Unmap()
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

func (l *limiter) source(p netip.Prefix, now time.Time) *source {
	s := l.sources[p]
	if s == nil {
		if len(l.sources) >= maxSources {
			l.forget(now)
		}
		s = &source{}
		l.sources[p] = s
	}
	return s
}

// forget drops those that have been quiet; when there are none, everybody
// without a connection: the common bucket still holds.
func (l *limiter) forget(now time.Time) {
	for p, s := range l.sources {
		if s.conns == 0 && now.Sub(s.hellos.last) > 2*time.Minute && now.Sub(s.failures.last) > 2*time.Minute {
			delete(l.sources, p)
		}
	}
	if len(l.sources) < maxSources {
		return
	}
	for p, s := range l.sources {
		if s.conns == 0 {
			delete(l.sources, p)
		}
	}
}

// hello tells whether a stranger may ask who is there.
func (l *limiter) hello(remote string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s := l.source(sourceOf(remote), now)
	if s.failures.full(now, failuresPerMinute, failuresPerMinute/60.0) {
		return false
	}
	return s.hellos.take(now, hellosPerMinute, hellosPerMinute/60.0) && l.all.take(now, 4*hellosPerSecond, hellosPerSecond)
}

// failed counts a wrong proof.
func (l *limiter) failed(remote string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.source(sourceOf(remote), now).failures.take(now, failuresPerMinute, failuresPerMinute/60.0)
}

// conn keeps the number of connections of each source and of all.
func (l *limiter) conn(c net.Conn, st http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	p := sourceOf(c.RemoteAddr().String())
	switch st {
	case http.StateNew:
		s := l.source(p, now)
		s.conns++
		total := 0
		for _, s := range l.sources {
			total += s.conns
		}
		if s.conns > maxConnsPerSource || total > maxConns {
			_ = c.Close() // counted until the server sees it closed
		}
	case http.StateClosed, http.StateHijacked:
		if s := l.sources[p]; s != nil && s.conns > 0 {
			s.conns--
		}
	}
}
