package ratelimit

import (
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	var b Bucket
	r := Rate{Burst: 10, PerSecond: 2}
	start := time.Unix(1e9, 0)
	for _, c := range []struct {
		after time.Duration
		n     float64
		ok    bool
		used  float64
	}{
		{0, 10, true, 10},
		{0, 1, false, 10},
		{400 * time.Millisecond, 1, false, 9.2}, // what has come back is kept for the next
		{500 * time.Millisecond, 1, true, 10},
		{-time.Hour, 1, false, 10}, // the clock was set back
		{-time.Hour + time.Second, 2, true, 10},
		{time.Hour, 11, false, 0},
		{time.Hour, 10, true, 10},
	} {
		if ok := b.Take(start.Add(c.after), r, c.n); ok != c.ok || b.Used(start.Add(c.after), r) != c.used {
			t.Errorf("%v after: take %v: %v, used %v", c.after, c.n, ok, b.Used(start.Add(c.after), r))
		}
	}

	b = Bucket{}
	b.Charge(start, r, 14)
	if b.Has(start.Add(2*time.Second), r, 1) || !b.Has(start.Add(2500*time.Millisecond), r, 1) {
		t.Error("a debt must come back first")
	}

	if b.Last() != start {
		t.Error(b.Last())
	}
}
