package supervisor

import (
	"testing"
	"time"
)

// Only what cannot be the way's doing is a difference of clocks.
func TestAhead(t *testing.T) {
	const round = 100 * time.Millisecond
	for _, c := range []struct {
		theirs time.Time
		want   time.Duration
	}{
		{now, 0}, {now.Add(round), 0}, {now.Add(round / 2), 0}, {time.Time{}, 0},
		{now.Add(10*time.Minute + round), 10 * time.Minute}, {now.Add(-10 * time.Minute), -10 * time.Minute},
	} {
		if got := ahead(c.theirs, now, round); got != c.want {
			t.Errorf("%s: %s, want %s", c.theirs, got, c.want)
		}
	}
}
