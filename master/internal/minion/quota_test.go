package minion

import (
	"testing"
	"time"
)

func TestFinding17QuotaComesBack(t *testing.T) {
	now := time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC)
	q := newQuota(1, time.Hour)
	if !q.chargeReturn("a", 1<<20, now) || q.chargeReturn("a", 1, now) || !q.chargeReturn("b", 1, now) ||
		q.chargeReturn("a", 600<<10, now.Add(30*time.Minute)) || !q.chargeReturn("a", 500<<10, now.Add(30*time.Minute)) {
		t.Error("the quota is not held for each minion and hour")
	}

	if !newQuota(-1, time.Hour).chargeReturn("a", 1<<40, now) {
		t.Error("no quota refuses")
	}

	for _, window := range []time.Duration{0, -time.Hour} { // jobs are kept for ever
		q := newQuota(1, window)
		if !q.chargeReturn("a", 1<<20, now) || q.chargeReturn("a", 600<<10, now.Add(12*time.Hour)) ||
			!q.chargeReturn("a", 500<<10, now.Add(12*time.Hour)) {
			t.Errorf("the quota is not regained in a day if jobs are kept for %v", window)
		}
	}

	if q := newQuota(0, time.Hour); q.bytes != defaultQuota {
		t.Errorf("the default is %v", q.bytes)
	}
}
