package lbproxy

import (
	"hash/fnv"
	"math"
	"net/netip"

	"saltern/internal/ratelimit"
)

// Balance source is weighted rendezvous hashing: each pair of a source and a backend
// has a number, and the backend with the highest one gets the source. All balancers
// of a cluster choose alike, without a table, and a backend that goes or comes moves
// only the sources that it had or gets.

// affinity is the number of a source with a backend of weight w.
func affinity(source, seed uint64, w int64) float64 {
	// The upper 53 bits as a number in (0, 1).
	u := (float64(spreadBits(source^seed)>>11) + 0.5) / (1 << 53)
	return float64(w) / -math.Log(u)
}

// spreadBits spreads the bits of x over the whole word (the finaliser of splitmix64).
func spreadBits(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func seedOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return spreadBits(h.Sum64())
}

// sourceHash is the same for all addresses that count as one source.
func sourceHash(a netip.Addr) uint64 {
	b := ratelimit.Source(a).As16()
	h := fnv.New64a()
	_, _ = h.Write(b[:])
	return spreadBits(h.Sum64())
}
