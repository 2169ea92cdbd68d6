// Package ratelimit bounds how often something may be done: so much at once, and so much a second
// in the long run. A [Pool] divides a resource among many holders.
package ratelimit

import (
	"net/netip"
	"time"
)

// Rate is the capacity of a [Bucket]: Burst at once, PerSecond after that.
type Rate struct{ Burst, PerSecond float64 }

// Bucket counts what is taken and has not come back. The zero Bucket is full. It is not safe for
// concurrent use. A clock that goes back returns nothing.
type Bucket struct {
	used float64
	at   time.Time
}

// Used returns how much is missing from a full bucket at now.
func (b *Bucket) Used(now time.Time, r Rate) float64 {
	return max(0, b.used-max(0, now.Sub(b.at).Seconds())*r.PerSecond)
}

// Has reports whether the bucket has n.
func (b *Bucket) Has(now time.Time, r Rate, n float64) bool { return b.Used(now, r)+n <= r.Burst }

// Take takes n if the bucket has that much, and reports whether it did.
func (b *Bucket) Take(now time.Time, r Rate, n float64) bool {
	ok := b.Has(now, r, n)
	if !ok {
		n = 0
	}
	b.Charge(now, r, n)
	return ok
}

// Charge takes n even if the bucket has less. What is missing must come back first.
func (b *Bucket) Charge(now time.Time, r Rate, n float64) {
	b.used = b.Used(now, r) + n
	b.at = now
}

// Last returns when the bucket was last used or asked.
func (b *Bucket) Last() time.Time { return b.at }

// Source returns the source of connections and requests that an address belongs to: an IPv4
// address itself, or the /64 of an IPv6 address, because a host has all of it. An invalid address
// stays as it is.
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
