package lbproxy

import (
	"hash/fnv"
	"math"
	"net/netip"

	"saltern/internal/ratelimit"
)

// Balance source is weighted rendezvous hashing. Each pair of a source and a backend has a score,
// and the backend with the highest score gets the source. So all balancers of a cluster choose the
// same backend without a table, and adding or removing a backend moves only the sources of that
// backend.

// affinity returns the score of a source at a backend of weight w.
func affinity(source, seed uint64, w int64) float64 {
	// The upper 53 bits as a number in (0, 1).
	u := (float64(spreadBits(source^seed)>>11) + 0.5) / (1 << 53)
	return float64(w) / -math.Log(u)
}

// spreadBits mixes the bits of x, so that each influences all bits of the result (the finaliser of
// splitmix64).
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

// sourceHash returns the hash of an address. All addresses of one source have the same hash.
func sourceHash(a netip.Addr) uint64 {
	b := ratelimit.Source(a).As16()
	h := fnv.New64a()
	_, _ = h.Write(b[:])
	return spreadBits(h.Sum64())
}
