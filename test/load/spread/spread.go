// Package spread says how measured values are distributed.
package spread

import (
	"math"
	"slices"
)

// Summary is what a report says of many values.
type Summary struct {
	N      int     `json:"n"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
	P99    float64 `json:"p99"`
	P999   float64 `json:"p999"`
	Max    float64 `json:"max"`
}

// Of sums values up; without any, all figures are 0.
func Of(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}

	v := slices.Sorted(slices.Values(values))

	// The value that a share q of all does not exceed (the nearest rank).
	at := func(q float64) float64 { return v[max(0, int(math.Ceil(q*float64(len(v))))-1)] }
	return Summary{
		N:      len(v),
		Min:    v[0],
		Median: at(.5),
		P95:    at(.95),
		P99:    at(.99),
		P999:   at(.999),
		Max:    v[len(v)-1],
	}
}
