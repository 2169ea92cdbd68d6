package master

import (
	"testing"
	"time"
)

// Jobs that are kept for a short time do not stay for several times as long.
func TestCleanInterval(t *testing.T) {
	for _, c := range []struct{ keep, loop, want time.Duration }{
		{24 * time.Hour, time.Minute, cleanEvery}, {0, time.Minute, cleanEvery}, {10 * time.Minute, time.Minute, 150 * time.Second},
		{time.Minute, time.Minute, time.Minute}, {20 * time.Second, 5 * time.Second, 5 * time.Second}, {time.Hour, 10 * time.Minute, cleanEvery},
	} {
		if got := cleanInterval(c.keep, c.loop); got != c.want {
			t.Errorf("kept for %s, loop_interval %s: every %s, want %s", c.keep, c.loop, got, c.want)
		}
	}
}

func TestOwnersAreKeptForADayWhereJobsAreKeptForEver(t *testing.T) {
	const day = 24 * time.Hour
	for keep, want := range map[time.Duration]time.Duration{0: day, -time.Second: day, time.Hour: time.Hour, 2 * day: 2 * day} {
		if got := ownersKept(keep); got != want {
			t.Errorf("keep_jobs_seconds %s: %s, want %s", keep, got, want)
		}
	}
}
