// Package ratelimit limits how often something may be done: a burst at once, and a number per second
// in the long run. A [Pool] divides a resource among many holders.
package ratelimit

import (
	"net/netip"
	"time"
)

// Rate is the capacity of a [Bucket]: Burst tokens at most, refilled by PerSecond tokens each
// second.
type Rate struct{ Burst, PerSecond float64 }

// Bucket is a token bucket; it stores how many tokens are missing. The zero Bucket is full. It is
// not safe for concurrent use. If the clock goes back, no tokens are refilled.
type Bucket struct {
	used float64
	at   time.Time
}

// Used returns how many tokens are missing at now.
func (b *Bucket) Used(now time.Time, r Rate) float64 {
	return max(0, b.used-max(0, now.Sub(b.at).Seconds())*r.PerSecond)
}

// Has reports whether the bucket has n tokens.
func (b *Bucket) Has(now time.Time, r Rate, n float64) bool { return b.Used(now, r)+n <= r.Burst }

// Take takes n tokens if the bucket has them, and reports whether it did.
func (b *Bucket) Take(now time.Time, r Rate, n float64) bool {
	ok := b.Has(now, r, n)
	if !ok {
		n = 0
	}
	b.Charge(now, r, n)
	return ok
}

// Charge takes n tokens even if the bucket has fewer. Take then fails until the missing tokens are
// refilled.
func (b *Bucket) Charge(now time.Time, r Rate, n float64) {
	b.used = b.Used(now, r) + n
	b.at = now
}

// Last returns when Take or Charge was last called.
func (b *Bucket) Last() time.Time { return b.at }

// Source returns the source to which an address belongs: an IPv4 address itself, or the /64 of an
// IPv6 address, because one host usually has all of it. An invalid address is returned unchanged.
func Source(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// SourceOf returns the Source of a remote address with its port, as net and net/http write it, or
// the zero Addr if the text has another form.
func SourceOf(remote string) netip.Addr {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return Source(ap.Addr())
}
