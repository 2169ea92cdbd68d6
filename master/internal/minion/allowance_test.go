package minion

import (
	"fmt"
	"testing"
	"time"
)

// TestFinding12Allowance: a minion that has much work done is refused until it
// has waited, and honest ones are not.
func TestFinding12Allowance(t *testing.T) {
	now := time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC)
	a := newAllowance()
	for i := range 5000 { // a highstate in which each asks for the mine of all, 50 times
		id := fmt.Sprint("web", i)
		for range 50 {
			if !a.hasCredit(id, now) {
				t.Fatal("an honest minion is refused")
			}
			a.charge(id, 10_000, now)
		}
	}

	a.charge("evil", 2*allowanceBurst, now)
	wait := time.Duration(stepRate.Burst / stepRate.PerSecond * float64(time.Second))
	if a.hasCredit("evil", now.Add(wait-time.Second)) || !a.hasCredit("evil", now.Add(wait+time.Second)) || !a.hasCredit("web1", now) {
		t.Error("a debt is not held against the one that made it, or for ever")
	}

	a.charge("late", 1, now.Add(time.Hour))
	if len(a.buckets) > 1 {
		t.Errorf("%d minions without a debt are remembered", len(a.buckets))
	}
}
