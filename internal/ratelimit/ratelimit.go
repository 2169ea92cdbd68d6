// Package ratelimit says how much of something may be done: so much at once, and so
// much a second in the long run; and how many share what there is ([Pool]).
package ratelimit

import (
	"net/netip"
	"time"
)

// Rate is what a [Bucket] gives: Burst at once, PerSecond after that.
type Rate struct{ Burst, PerSecond float64 }

// Bucket holds what has been taken and has not come back yet. The zero Bucket is full.
// Callers take turns; a clock that goes back gives nothing.
type Bucket struct {
	used float64
	at   time.Time
}

// Used returns what is missing from a full bucket at now.
func (b *Bucket) Used(now time.Time, r Rate) float64 {
	return max(0, b.used-max(0, now.Sub(b.at).Seconds())*r.PerSecond)
}

// Has reports whether n could be taken.
func (b *Bucket) Has(now time.Time, r Rate, n float64) bool { return b.Used(now, r)+n <= r.Burst }

// Take takes n, if so much is there.
func (b *Bucket) Take(now time.Time, r Rate, n float64) bool {
	ok := b.Has(now, r, n)
	if !ok {
		n = 0
	}
	b.Charge(now, r, n)
	return ok
}

// Charge takes n, more than is there as well: what is missing must come back first.
func (b *Bucket) Charge(now time.Time, r Rate, n float64) {
	b.used = b.Used(now, r) + n
	b.at = now
}

// Last is when something was last taken or asked for.
func (b *Bucket) Last() time.Time { return b.at }

// Source is what counts as one source of connections and requests: an IPv4 address,
// or the network of an IPv6 one, since a host has all of a /64. An address that is
// not valid stays so.
func Source(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// SourceOf is the Source of a remote address with its port, as net and net/http give
// it. The zero Addr stands for all that are no such address.
func SourceOf(remote string) netip.Addr {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return Source(ap.Addr())
}
